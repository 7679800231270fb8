-- How duplicates are found and listed. The columns are there before the index that needs them, and both before this
-- migration's number is recorded, whatever the table looked like.
ALTER TABLE dedup.library_files
    ADD COLUMN IF NOT EXISTS is_missing     boolean NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS needs_hash     boolean NOT NULL DEFAULT true,
    ADD COLUMN IF NOT EXISTS hash_algorithm text,
    ADD COLUMN IF NOT EXISTS content_hash   bytea;

DROP INDEX IF EXISTS dedup.ix_library_files_dedup_group;
CREATE INDEX ix_library_files_dedup_group ON dedup.library_files (hash_algorithm, content_hash, id) INCLUDE (size_bytes)
    WHERE NOT is_missing AND NOT needs_hash AND hash_algorithm IS NOT NULL AND content_hash IS NOT NULL;

CREATE UNIQUE INDEX library_files_path ON dedup.library_files (library_id, relative_path);
-- partners of the same size, also those of one library; and of large files those that begin alike
CREATE INDEX library_files_size ON dedup.library_files (size_bytes, library_id) WHERE NOT is_missing;
CREATE INDEX library_files_prefix ON dedup.library_files (size_bytes, prefix_hash) WHERE NOT is_missing AND prefix_hash IS NOT NULL;
-- those that were hashed whole at once have no beginning that could be compared
CREATE INDEX library_files_whole ON dedup.library_files (size_bytes)
    WHERE NOT is_missing AND NOT needs_hash AND prefix_hash IS NULL AND size_bytes > 4096;
CREATE INDEX library_files_hash_claim ON dedup.library_files (id) WHERE hash_status = 'pending';
CREATE INDEX library_files_hash_running ON dedup.library_files (id) WHERE hash_status = 'running';
-- where a file went: those that are gone, and one that has come with the same inode
CREATE INDEX library_files_missing ON dedup.library_files (missing_session_id, id) WHERE is_missing;
CREATE INDEX library_files_inode ON dedup.library_files (library_id, inode) WHERE NOT is_missing;
CREATE INDEX library_files_gone ON dedup.library_files (updated_at) WHERE is_missing;
CREATE INDEX scan_sessions_library ON dedup.scan_sessions (library_id, id DESC);
CREATE INDEX scan_sessions_succeeded ON dedup.scan_sessions (library_id, id DESC) WHERE status = 'succeeded';
CREATE INDEX scan_sessions_running ON dedup.scan_sessions (library_id) WHERE status = 'running';
CREATE INDEX scan_sessions_ended ON dedup.scan_sessions (finished_at) WHERE status IN ('succeeded', 'failed');
CREATE INDEX scan_sessions_errors ON dedup.scan_sessions (finished_at)
    WHERE status IN ('succeeded', 'failed') AND error_count > 0 AND errors_purged_at IS NULL;
