-- What a value can be, and what belongs to what. Lower case only; the sets are those of the protocol.
ALTER TABLE dedup.library_roots
    ADD CONSTRAINT library_name CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$');
CREATE UNIQUE INDEX library_roots_name ON dedup.library_roots (name);
CREATE UNIQUE INDEX library_roots_root_path ON dedup.library_roots (root_path);

ALTER TABLE dedup.scan_sessions
    ADD CONSTRAINT scan_session_status CHECK (status IN ('running', 'succeeded', 'failed')),
    ADD CONSTRAINT scan_session_library FOREIGN KEY (library_id) REFERENCES dedup.library_roots ON DELETE CASCADE;

ALTER TABLE dedup.library_files
    ADD CONSTRAINT file_library FOREIGN KEY (library_id) REFERENCES dedup.library_roots ON DELETE CASCADE,
    ADD CONSTRAINT file_algorithm CHECK (hash_algorithm IN ('blake3', 'sha256')),
    ADD CONSTRAINT file_hash CHECK ((hash_algorithm IS NULL) = (content_hash IS NULL) AND octet_length(content_hash) = 32),
    ADD CONSTRAINT file_size CHECK (size_bytes >= 0),
    ADD CONSTRAINT file_hash_status CHECK (hash_status IN ('idle', 'pending', 'running')),
    -- a hash is that of the file as it stands in this row, or it is none
    ADD CONSTRAINT file_hashed CHECK (needs_hash OR (content_hash IS NOT NULL AND hashed_size = size_bytes
        AND hashed_mtime_ns = mtime_ns AND hashed_size IS NOT NULL AND hashed_mtime_ns IS NOT NULL));

ALTER TABLE dedup.jobs
    ADD CONSTRAINT job_kind CHECK (kind IN ('scan', 'hash', 'delete', 'thumbnail')),
    ADD CONSTRAINT job_status CHECK (status IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'retryable')),
    ADD CONSTRAINT job_progress CHECK (progress BETWEEN 0 AND 1),
    ADD CONSTRAINT job_items CHECK (processed_items >= 0 AND total_items >= 0),
    ADD CONSTRAINT job_worker CHECK (length(worker_id) <= 128),
    ADD CONSTRAINT job_library FOREIGN KEY (library_id) REFERENCES dedup.library_roots ON DELETE CASCADE;

ALTER TABLE dedup.thumbnails
    ADD CONSTRAINT thumbnail_status CHECK (status IN ('pending', 'running', 'ready', 'failed')),
    ADD CONSTRAINT thumbnail_media_type CHECK (media_type IN ('image', 'video')),
    ADD CONSTRAINT thumbnail_format CHECK (format IN ('jpeg', 'webp')),
    ADD CONSTRAINT thumbnail_dimension CHECK (max_dimension BETWEEN 16 AND 2048),
    ADD CONSTRAINT thumbnail_removed CHECK (file_id IS NOT NULL OR group_key = 'removed'),
    ADD CONSTRAINT thumbnail_file FOREIGN KEY (file_id) REFERENCES dedup.library_files ON DELETE SET NULL;
CREATE UNIQUE INDEX thumbnails_thumb_key ON dedup.thumbnails (thumb_key);

ALTER TABLE dedup.thumbnail_cleanup_jobs
    ADD CONSTRAINT cleanup_status CHECK (status IN ('pending', 'running', 'completed', 'failed'));
CREATE UNIQUE INDEX cleanup_open_group
    ON dedup.thumbnail_cleanup_jobs (group_key) WHERE status IN ('pending', 'running');

ALTER TABLE dedup.wal_maintenance_jobs
    ADD CONSTRAINT wal_mode CHECK (requested_mode IN ('passive', 'restart', 'truncate')),
    ADD CONSTRAINT wal_status CHECK (status IN ('pending', 'running', 'retryable', 'completed', 'failed'));
