-- What has no hash yet is found without a look at what has one. A file that gets its hash leaves the index.
CREATE INDEX library_files_to_hash ON dedup.library_files (id) WHERE needs_hash AND NOT is_missing;

-- of the files that a walk found, those that it hashed as well
ALTER TABLE dedup.scan_sessions ADD COLUMN files_hashed bigint NOT NULL DEFAULT 0;
