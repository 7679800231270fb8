-- What the HTTP API of the dedup domain asks. Every listing is by keyset and reads one row more than a page: whether there is a
-- next one. `claim_id` is left out of all of them: who knows it can end the work.

-- name: request_dedup_job
-- $1 actor, $2 kind, $3 library, $4 payload, $5 dry run
SELECT j.id, j.kind, j.status, l.name AS library, j.run_id, j.requested_by, j.dry_run, j.payload, j.progress, j.total_items,
       j.processed_items, j.retry_count, j.retry_after, j.error_code, j.error_message, j.worker_id, j.worker_heartbeat_at,
       j.lease_expires_at, j.created_at, j.updated_at, j.started_at, j.finished_at
  FROM dedup.request_job($1::text, $2::text, $3::text, $4::text::jsonb, $5::boolean) AS j
  LEFT JOIN dedup.library_roots AS l ON l.id = j.library_id;

-- name: request_dedup_delete
-- $1 actor, $2 algorithm, $3 hash, $4 the file that stays, $5 those that go, $6 dry run; without a choice the oldest stays
SELECT j.id, j.kind, j.status, NULL::text AS library, j.run_id, j.requested_by, j.dry_run, j.payload, j.progress, j.total_items,
       j.processed_items, j.retry_count, j.retry_after, j.error_code, j.error_message, j.worker_id, j.worker_heartbeat_at,
       j.lease_expires_at, j.created_at, j.updated_at, j.started_at, j.finished_at
  FROM dedup.request_delete($1::text, $2::text, $3::bytea, $4::bigint, $5::bigint[], $6::boolean) AS j;

-- name: cancel_dedup_job
-- $1 actor, $2 job
SELECT j.id, j.kind, j.status, l.name AS library, j.run_id, j.requested_by, j.dry_run, j.payload, j.progress, j.total_items,
       j.processed_items, j.retry_count, j.retry_after, j.error_code, j.error_message, j.worker_id, j.worker_heartbeat_at,
       j.lease_expires_at, j.created_at, j.updated_at, j.started_at, j.finished_at
  FROM dedup.cancel_job($1::text, $2::uuid) AS j LEFT JOIN dedup.library_roots AS l ON l.id = j.library_id;

-- name: reset_dedup_job
-- $1 actor, $2 job: a retryable one goes back before its time
SELECT j.id, j.kind, j.status, l.name AS library, j.run_id, j.requested_by, j.dry_run, j.payload, j.progress, j.total_items,
       j.processed_items, j.retry_count, j.retry_after, j.error_code, j.error_message, j.worker_id, j.worker_heartbeat_at,
       j.lease_expires_at, j.created_at, j.updated_at, j.started_at, j.finished_at
  FROM dedup.reset_job($1::text, $2::uuid) AS j LEFT JOIN dedup.library_roots AS l ON l.id = j.library_id;

-- name: read_dedup_job
-- one job by id
SELECT j.id, j.kind, j.status, l.name AS library, j.run_id, j.requested_by, j.dry_run, j.payload, j.progress, j.total_items,
       j.processed_items, j.retry_count, j.retry_after, j.error_code, j.error_message, j.worker_id, j.worker_heartbeat_at,
       j.lease_expires_at, j.created_at, j.updated_at, j.started_at, j.finished_at
  FROM dedup.jobs AS j LEFT JOIN dedup.library_roots AS l ON l.id = j.library_id WHERE j.id = $1::uuid;

-- name: list_dedup_moves
-- the latest moves of a job, the newest first
SELECT m.from_status, m.to_status, m.worker_id, m.error_code, m.database_user, m.at
  FROM dedup.job_moves AS m WHERE m.job_id = $1::uuid ORDER BY m.id DESC LIMIT $2::integer;

-- name: find_dedup_job
-- the row that a cursor names: the page after it begins behind its place
SELECT j.created_at FROM dedup.jobs AS j WHERE j.id = $1::uuid;

-- name: list_dedup_jobs
-- $1 kind, $2 status, $3 and $4 the place of the last row of the page before, $5 rows; the newest first
SELECT j.id, j.kind, j.status, l.name AS library, j.run_id, j.requested_by, j.dry_run, j.payload, j.progress, j.total_items,
       j.processed_items, j.retry_count, j.retry_after, j.error_code, j.error_message, j.worker_id, j.worker_heartbeat_at,
       j.lease_expires_at, j.created_at, j.updated_at, j.started_at, j.finished_at
  FROM dedup.jobs AS j LEFT JOIN dedup.library_roots AS l ON l.id = j.library_id
 WHERE ($1::text IS NULL OR j.kind = $1::text) AND ($2::text IS NULL OR j.status = $2::text)
   AND (j.created_at, j.id) < (coalesce($3::timestamptz, 'infinity'), coalesce($4::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
 ORDER BY j.created_at DESC, j.id DESC LIMIT $5::integer;

-- name: list_duplicate_groups
-- $1 to $4 the last group of the page before, $5 rows; in the order of the index, which alone is read: no group is kept in memory
SELECT f.hash_algorithm || ':' || encode(f.content_hash, 'hex') AS group_key, f.hash_algorithm,
       encode(f.content_hash, 'hex') AS content_hash_hex, count(*) AS file_count,
       sum(f.size_bytes) AS total_size_bytes, sum(f.size_bytes) - min(f.size_bytes) AS duplicate_waste_bytes,
       min(f.id) AS sample_file_id
  FROM (SELECT x.hash_algorithm, x.content_hash, x.id, x.size_bytes FROM dedup.library_files AS x
         WHERE NOT x.is_missing AND NOT x.needs_hash AND x.hash_algorithm IS NOT NULL AND x.content_hash IS NOT NULL
         ORDER BY x.hash_algorithm, x.content_hash OFFSET 0) AS f
 GROUP BY f.hash_algorithm, f.content_hash
HAVING count(*) > 1 AND ($1::bigint IS NULL OR count(*) < $1::bigint OR count(*) = $1::bigint
       AND (sum(f.size_bytes) < $2::numeric OR sum(f.size_bytes) = $2::numeric
       AND (f.hash_algorithm, f.content_hash) > ($3::text, $4::bytea)))
 ORDER BY count(*) DESC, sum(f.size_bytes) DESC, f.hash_algorithm, f.content_hash LIMIT $5::integer;

-- name: list_library_duplicate_groups
-- the same within library $6: groups of two or more of its files, and the figures are of these alone
SELECT f.hash_algorithm || ':' || encode(f.content_hash, 'hex') AS group_key, f.hash_algorithm,
       encode(f.content_hash, 'hex') AS content_hash_hex, count(*) AS file_count,
       sum(f.size_bytes) AS total_size_bytes, sum(f.size_bytes) - min(f.size_bytes) AS duplicate_waste_bytes,
       min(f.id) AS sample_file_id
  FROM dedup.library_files AS f
 WHERE f.library_id = $6::bigint AND NOT f.is_missing AND NOT f.needs_hash
   AND f.hash_algorithm IS NOT NULL AND f.content_hash IS NOT NULL
 GROUP BY f.hash_algorithm, f.content_hash
HAVING count(*) > 1 AND ($1::bigint IS NULL OR count(*) < $1::bigint OR count(*) = $1::bigint
       AND (sum(f.size_bytes) < $2::numeric OR sum(f.size_bytes) = $2::numeric
       AND (f.hash_algorithm, f.content_hash) > ($3::text, $4::bytea)))
 ORDER BY count(*) DESC, sum(f.size_bytes) DESC, f.hash_algorithm, f.content_hash LIMIT $5::integer;

-- name: list_group_files
-- $1 algorithm, $2 hash, $3 the last id of the page before, $4 rows
SELECT f.id, l.name AS library, f.relative_path, f.size_bytes, f.mtime_ns, f.inode, f.device, f.hashed_at
  FROM dedup.library_files AS f JOIN dedup.library_roots AS l ON l.id = f.library_id
 WHERE NOT f.is_missing AND NOT f.needs_hash AND f.hash_algorithm = $1::text AND f.content_hash = $2::bytea AND f.id > $3::bigint
 ORDER BY f.id LIMIT $4::integer;

-- name: request_one_thumbnail
-- $1 actor, $2 file, $3 format, $4 pixels; refused when the queue is full
SELECT t.id, t.thumb_key, t.file_id, t.group_key, t.status, t.media_type, t.format, t.max_dimension, t.source_size,
       t.source_mtime_ns, t.width, t.height, t.bytes_size, t.error_code, t.error_message, t.error_count, t.retry_after,
       t.worker_id, t.worker_heartbeat_at, t.lease_expires_at, t.created_at, t.updated_at, t.started_at, t.finished_at
  FROM dedup.request_thumbnail($1::text, $2::bigint, $3::text, $4::integer) AS t;

-- name: note_dedup_work
-- $1 actor, $2 claim or finish, $3 job, $4 what a worker over HTTP said of itself and of the job
SELECT dedup.note_work($1::text, $2::text, $3::uuid, $4::text::jsonb);

-- name: read_one_thumbnail
-- one thumbnail by key, with where its file is
SELECT t.id, t.thumb_key, t.file_id, t.group_key, t.status, t.media_type, t.format, t.max_dimension, t.source_size,
       t.source_mtime_ns, t.width, t.height, t.bytes_size, t.error_code, t.error_message, t.error_count, t.retry_after,
       t.worker_id, t.worker_heartbeat_at, t.lease_expires_at, t.created_at, t.updated_at, t.started_at, t.finished_at,
       t.output_relpath
  FROM dedup.thumbnails AS t WHERE t.thumb_key = $1::text AND t.file_id IS NOT NULL;

-- name: read_thumbnail_metrics
-- the queue, what waits for another try, and what waits for removal; only rows of partial indexes are counted
SELECT clock_timestamp() AS generated_at, q.pending + q.running AS queue_depth, q.pending AS queue_pending,
       q.running AS queue_running, r.backlog AS retry_backlog, r.ready AS retry_ready, c.pending AS cleanup_pending,
       c.running AS cleanup_running, c.overdue AS cleanup_overdue, c.lag AS cleanup_max_lag_seconds,
       (SELECT (s.value)::bigint FROM supervisor.setting AS s WHERE s.name = 'dedup_thumbnail_capacity') AS capacity
  FROM (SELECT (SELECT count(*) FROM dedup.thumbnails AS t WHERE t.status = 'pending') AS pending,
               (SELECT count(*) FROM dedup.thumbnails AS t WHERE t.status = 'running') AS running) AS q
 CROSS JOIN (SELECT count(*) AS backlog, count(*) FILTER (WHERE t.retry_after <= clock_timestamp()) AS ready
               FROM dedup.thumbnails AS t WHERE t.status = 'failed') AS r
 CROSS JOIN (SELECT count(*) FILTER (WHERE x.status = 'pending') AS pending, count(*) FILTER (WHERE x.status = 'running') AS running,
                    count(*) FILTER (WHERE x.status = 'pending' AND x.execute_after <= clock_timestamp()) AS overdue,
                    coalesce(greatest(0, extract(epoch FROM clock_timestamp() - min(x.execute_after)
                        FILTER (WHERE x.status = 'pending'))), 0)::double precision AS lag
               FROM dedup.thumbnail_cleanup_jobs AS x WHERE x.status IN ('pending', 'running')) AS c;

-- name: schedule_group_cleanup
-- $1 actor, $2 group, $3 seconds from now; one that is open already is the answer
SELECT c.id, c.group_key, c.status, c.requested_by, c.execute_after, c.error_code, c.error_message, c.worker_id,
       c.worker_heartbeat_at, c.lease_expires_at, c.created_at, c.updated_at, c.finished_at
  FROM dedup.schedule_cleanup($1::text, $2::text, $3::double precision) AS c;

-- name: request_wal_checkpoint
-- $1 actor, $2 mode, $3 reason, $4 not before
SELECT w.id, w.requested_mode, w.status, w.requested_by, w.reason, w.execute_after, w.retry_count, w.retry_after,
       w.checkpoint_busy, w.checkpoint_log_frames, w.checkpointed_frames, w.error_code, w.error_message, w.worker_id,
       w.worker_heartbeat_at, w.lease_expires_at, w.created_at, w.updated_at, w.started_at, w.finished_at
  FROM dedup.request_checkpoint($1::text, $2::text, $3::text, $4::timestamptz) AS w;

-- name: read_latest_checkpoint
-- the checkpoint that was asked for last
SELECT w.id, w.requested_mode, w.status, w.requested_by, w.reason, w.execute_after, w.retry_count, w.retry_after,
       w.checkpoint_busy, w.checkpoint_log_frames, w.checkpointed_frames, w.error_code, w.error_message, w.worker_id,
       w.worker_heartbeat_at, w.lease_expires_at, w.created_at, w.updated_at, w.started_at, w.finished_at
  FROM dedup.wal_maintenance_jobs AS w ORDER BY w.id DESC LIMIT 1;

-- name: read_wal_metrics
-- how many checkpoints stand where; one is made in dedup_wal_interval_seconds, so the table is small
SELECT clock_timestamp() AS generated_at, count(*) FILTER (WHERE w.status = 'pending') AS pending,
       count(*) FILTER (WHERE w.status = 'running') AS running, count(*) FILTER (WHERE w.status = 'retryable') AS retryable,
       count(*) FILTER (WHERE w.status = 'failed') AS failed, count(*) FILTER (WHERE w.status = 'completed') AS completed,
       max(w.finished_at) FILTER (WHERE w.status = 'completed') AS latest_completed_at
  FROM dedup.wal_maintenance_jobs AS w;

-- name: add_library_root
-- $1 actor, $2 name, $3 path below the libraries' directory
SELECT l.id, l.name, l.root_path AS path, l.last_scanned_at, l.created_at, l.updated_at,
       NULL::bigint AS last_session_id, NULL::text AS last_session_status
  FROM dedup.add_library($1::text, $2::text, $3::text) AS l;

-- name: empty_library_root
-- $2 how many files at most; again until there are none
SELECT dedup.empty_library($1::text, $2::integer);

-- name: remove_library_root
-- its files and jobs leave the database, its thumbnails are cleaned up; the originals stay
SELECT dedup.remove_library($1::text, $2::text);

-- name: read_library_root
-- one library, with its latest walk
SELECT l.id, l.name, l.root_path AS path, l.last_scanned_at, l.created_at, l.updated_at,
       s.id AS last_session_id, s.status AS last_session_status
  FROM dedup.library_roots AS l
  LEFT JOIN LATERAL (SELECT x.id, x.status FROM dedup.scan_sessions AS x WHERE x.library_id = l.id ORDER BY x.id DESC LIMIT 1) AS s
       ON true
 WHERE l.name = $1::text;

-- name: list_library_roots
-- $1 the last name of the page before, $2 rows
SELECT l.id, l.name, l.root_path AS path, l.last_scanned_at, l.created_at, l.updated_at,
       s.id AS last_session_id, s.status AS last_session_status
  FROM dedup.library_roots AS l
  LEFT JOIN LATERAL (SELECT x.id, x.status FROM dedup.scan_sessions AS x WHERE x.library_id = l.id ORDER BY x.id DESC LIMIT 1) AS s
       ON true
 WHERE l.name COLLATE "C" > $1::text COLLATE "C" ORDER BY l.name COLLATE "C" LIMIT $2::integer;

-- name: list_scan_sessions
-- $1 library, $2 the last id of the page before, $3 rows; the newest first
SELECT s.id, l.name AS library, s.job_id, s.status, s.files_seen, s.directories_seen, s.bytes_seen, s.skipped, s.error_count,
       s.files_new, s.files_changed, s.files_moved, s.files_missing, s.batches, s.resumed, s.error_code, s.error_message,
       s.started_at, s.updated_at, s.finished_at
  FROM dedup.scan_sessions AS s JOIN dedup.library_roots AS l ON l.id = s.library_id
 WHERE s.library_id = $1::bigint AND s.id < $2::bigint ORDER BY s.id DESC LIMIT $3::integer;

-- name: read_scan_session
-- one walk by id
SELECT s.id, l.name AS library, s.job_id, s.status, s.files_seen, s.directories_seen, s.bytes_seen, s.skipped, s.error_count,
       s.files_new, s.files_changed, s.files_moved, s.files_missing, s.batches, s.resumed, s.error_code, s.error_message,
       s.started_at, s.updated_at, s.finished_at
  FROM dedup.scan_sessions AS s JOIN dedup.library_roots AS l ON l.id = s.library_id WHERE s.id = $1::bigint;

-- name: find_scan_error
-- the path a cursor stands for: a path can be longer than an address, so the cursor is its hash
SELECT e.path FROM dedup.scan_errors AS e WHERE e.session_id = $1::bigint AND sha256(convert_to(e.path, 'UTF8')) = $2::bytea;

-- name: list_scan_errors
-- $1 walk, $2 the last path of the page before, $3 rows
SELECT e.path, e.code, e.at FROM dedup.scan_errors AS e
 WHERE e.session_id = $1::bigint AND e.path > $2::text ORDER BY e.path LIMIT $3::integer;
