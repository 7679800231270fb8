-- A make that had everything, in its own types and spellings.
CREATE TABLE dedup.schema_migrations (version varchar(64) PRIMARY KEY, applied_at timestamp NOT NULL);
INSERT INTO dedup.schema_migrations VALUES ('0001_initial', '2024-01-01'), ('0010_mutex', '2024-01-02');

CREATE TABLE dedup.library_roots (id serial PRIMARY KEY, name varchar(64) NOT NULL UNIQUE, root_path text NOT NULL UNIQUE,
    last_scanned_at timestamp, created_at timestamp NOT NULL);
CREATE TABLE dedup.jobs (id varchar(36) PRIMARY KEY,
    kind varchar(16) NOT NULL CHECK (upper(kind) IN ('SCAN', 'HASH', 'DELETE', 'THUMBNAIL')),
    status varchar(16) NOT NULL CONSTRAINT jobs_status_check CHECK (status = upper(status) OR status = 'Pending'),
    dry_run integer NOT NULL DEFAULT 1, payload json, progress real, total_items integer, processed_items integer,
    worker_id varchar(128), worker_heartbeat_at timestamp, lease_expires_at timestamp, error_code varchar(64),
    error_message text, created_at timestamp NOT NULL, updated_at timestamp, started_at timestamp, finished_at timestamp,
    note varchar(20) NOT NULL DEFAULT 'kept');
CREATE INDEX ix_jobs_single_active_scan_hash ON dedup.jobs (status) WHERE status IN ('PENDING', 'RUNNING');
CREATE TABLE dedup.job_locks (job_id varchar(36) REFERENCES dedup.jobs, holder text);
CREATE TABLE dedup.scan_sessions (id serial PRIMARY KEY, library_id integer NOT NULL REFERENCES dedup.library_roots,
    status varchar(16) NOT NULL, files_seen integer, directories_seen integer, bytes_seen bigint, error_count integer,
    started_at timestamp, finished_at timestamp);
CREATE TABLE dedup.library_files (id serial PRIMARY KEY, library_id integer NOT NULL REFERENCES dedup.library_roots,
    relative_path varchar(1024) NOT NULL, size_bytes bigint NOT NULL, mtime_ns bigint NOT NULL, inode bigint, device bigint,
    is_missing integer NOT NULL DEFAULT 0 CHECK (is_missing IN (0, 1)), needs_hash integer NOT NULL DEFAULT 1,
    hash_algorithm varchar(8) CHECK (hash_algorithm IN ('BLAKE3', 'SHA256')), content_hash bytea, hashed_size bigint,
    hashed_mtime_ns bigint, hashed_at timestamp, hash_error_count integer, hash_retry_after timestamp,
    hash_claim_token varchar(36), UNIQUE (library_id, relative_path));
CREATE INDEX ix_library_files_dedup_group ON dedup.library_files (content_hash) WHERE is_missing = 0 AND needs_hash = 0;
CREATE TABLE dedup.thumbnails (id serial PRIMARY KEY, thumb_key varchar(64) NOT NULL UNIQUE,
    file_id integer NOT NULL REFERENCES dedup.library_files, group_key varchar(80) NOT NULL,
    status varchar(8) NOT NULL CHECK (status IN ('PENDING', 'RUNNING', 'READY', 'FAILED')), media_type varchar(8) NOT NULL,
    format varchar(8) NOT NULL, max_dimension integer NOT NULL, source_size bigint, source_mtime_ns bigint,
    output_relpath text, width integer, height integer, bytes_size integer, error_code varchar(64), error_message text,
    error_count integer NOT NULL DEFAULT 0, retry_after timestamp, worker_id varchar(128), worker_heartbeat_at timestamp,
    lease_expires_at timestamp, created_at timestamp NOT NULL, updated_at timestamp);
CREATE TABLE dedup.thumbnail_cleanup_jobs (id serial PRIMARY KEY, group_key varchar(80) NOT NULL,
    status varchar(16) NOT NULL, execute_after timestamp NOT NULL, error_code varchar(64), error_message text,
    worker_id varchar(128), worker_heartbeat_at timestamp, lease_expires_at timestamp, created_at timestamp);
CREATE TABLE dedup.wal_maintenance_jobs (id serial PRIMARY KEY, requested_mode varchar(16) NOT NULL,
    status varchar(16) NOT NULL, requested_by text, reason text, execute_after timestamp, retry_count integer,
    retry_after timestamp, checkpoint_busy integer, checkpoint_log_frames integer, checkpointed_frames integer,
    error_code varchar(64), error_message text, worker_id varchar(128), worker_heartbeat_at timestamp,
    lease_expires_at timestamp, created_at timestamp, started_at timestamp, finished_at timestamp);
CREATE TABLE dedup.io_rate_limits (bucket_key varchar(64) PRIMARY KEY, next_available_at_ms bigint NOT NULL,
    updated_at timestamp NOT NULL);

INSERT INTO dedup.library_roots (name, root_path, created_at) VALUES ('photos', '/libraries/photos', '2024-01-01 10:00');

INSERT INTO dedup.jobs (id, kind, status, worker_id, lease_expires_at, created_at, progress, error_code) VALUES
    ('00000000-0000-0000-0000-000000000001', 'SCAN', 'COMPLETED', 'w1', NULL, '2024-01-01 00:00', 1, NULL),
    ('00000000-0000-0000-0000-000000000002', 'HASH', 'RUNNING', 'w1', '2024-01-09 00:00', '2024-01-04 00:00', 0.5, NULL),
    ('00000000-0000-0000-0000-000000000003', 'SCAN', 'RUNNING', 'w2', '2024-01-09 00:00', '2024-01-03 00:00', 0.25, NULL),
    ('00000000-0000-0000-0000-000000000004', 'SCAN', 'RUNNING', 'w3', NULL, '2024-01-03 00:00', 0, NULL),
    ('00000000-0000-0000-0000-000000000005', 'HASH', 'PENDING', NULL, NULL, '2024-01-02 00:00', 0, NULL),
    ('00000000-0000-0000-0000-000000000006', 'Scan', 'Pending', NULL, NULL, '2024-01-05 00:00', 0, NULL),
    ('00000000-0000-0000-0000-000000000007', 'DELETE', 'RUNNING', 'w1', NULL, '2024-01-01 00:00', 0, NULL),
    ('00000000-0000-0000-0000-000000000008', 'THUMBNAIL', 'PENDING', NULL, NULL, '2024-01-01 00:00', 0, NULL),
    ('00000000-0000-0000-0000-000000000009', 'HASH', 'RETRYABLE', NULL, NULL, '2024-01-01 00:00', 0, 'LEASE_EXPIRED'),
    ('00000000-0000-0000-0000-00000000000a', 'SCAN', 'FAILED', NULL, NULL, '2024-01-01 00:00', 0, 'WORKER_FAILURE'),
    ('00000000-0000-0000-0000-00000000000b', 'HASH', 'CANCELLED', NULL, NULL, '2024-01-01 00:00', 0, NULL);

UPDATE dedup.jobs SET payload = '{"algorithm": "blake3"}' WHERE kind = 'HASH';
INSERT INTO dedup.job_locks VALUES ('00000000-0000-0000-0000-000000000002', 'w1');
INSERT INTO dedup.scan_sessions (library_id, status, files_seen) VALUES (1, 'SUCCEEDED', 4), (1, 'FAILED', 0);
INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns, is_missing, needs_hash, hash_algorithm,
    content_hash, hashed_size, hashed_mtime_ns) VALUES
    (1, 'a.jpg', 5, 7, 0, 0, 'BLAKE3', decode(repeat('ab', 32), 'hex'), 5, 7),
    (1, 'Z.jpg', 5, 8, 0, 0, 'SHA256', decode(repeat('cd', 32), 'hex'), NULL, NULL),
    (1, 'gone.jpg', 5, 9, 1, 0, 'BLAKE3', decode(repeat('ef', 32), 'hex'), 5, 9),
    (1, 'new.jpg', 6, 9, 0, 1, NULL, NULL, NULL, NULL),
    (1, 'changed.jpg', 6, 9, 0, 0, 'BLAKE3', decode(repeat('ab', 32), 'hex'), 5, 7);
INSERT INTO dedup.thumbnails (thumb_key, file_id, group_key, status, media_type, format, max_dimension, created_at) VALUES
    ('k1', 1, 'g', 'READY', 'IMAGE', 'JPEG', 256, '2024-01-01'), ('k2', 2, 'g', 'FAILED', 'VIDEO', 'WEBP', 256, '2024-01-01'),
    ('k3', 3, 'h', 'RUNNING', 'IMAGE', 'WEBP', 128, '2024-01-01');
INSERT INTO dedup.thumbnail_cleanup_jobs (group_key, status, execute_after) VALUES
    ('g', 'PENDING', '2024-01-01'), ('g', 'RUNNING', '2024-01-02'), ('g', 'COMPLETED', '2024-01-01'), ('h', 'PENDING', '2024-01-01');
INSERT INTO dedup.wal_maintenance_jobs (requested_mode, status, execute_after) VALUES
    ('PASSIVE', 'RETRYABLE', '2024-01-01'), ('TRUNCATE', 'COMPLETED', '2024-01-01');
INSERT INTO dedup.io_rate_limits VALUES ('thumbnail_io_global', 12345, '2024-01-01');
