-- A make whose files knew no hashes yet, with times as text and enumerations of the database.
CREATE TYPE dedup.jobkind AS ENUM ('SCAN', 'HASH', 'DELETE', 'THUMBNAIL', 'Scan');
CREATE TABLE dedup.library_roots (id integer PRIMARY KEY, name text NOT NULL, root_path text NOT NULL);
CREATE TABLE dedup.jobs (id char(36) PRIMARY KEY, kind dedup.jobkind NOT NULL, status text NOT NULL, worker_id text,
    lease_expires_at text, created_at text NOT NULL, progress text, error_code text, payload text DEFAULT '');
CREATE TABLE dedup.library_files (id integer PRIMARY KEY, library_id integer NOT NULL, relative_path text NOT NULL,
    size_bytes integer NOT NULL, mtime_ns bigint NOT NULL);
INSERT INTO dedup.library_roots VALUES (3, 'photos', '/libraries/photos');
INSERT INTO dedup.library_files VALUES (41, 3, 'a.jpg', 5, 7), (42, 3, 'b.jpg', 5, 8);

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
