-- What a run of the dedup domain asks while its jobs are worked on.

-- name: list_library_names
-- what rescan-all goes through
SELECT l.name FROM dedup.library_roots AS l ORDER BY l.name;

-- name: read_job_of_run
-- how far it is, and when it has ended with which figures; no row: it went with its library
SELECT j.id, j.status, j.progress, j.total_items, j.processed_items, j.error_code, j.error_message,
       coalesce(s.files_seen, j.total_items, j.processed_items) AS items,
       s.files_new, s.files_changed, s.files_moved, s.files_missing, s.error_count, s.files_hashed
  FROM dedup.jobs AS j
  LEFT JOIN LATERAL (
       SELECT w.files_seen, w.files_new, w.files_changed, w.files_moved, w.files_missing, w.error_count, w.files_hashed
         FROM dedup.scan_sessions AS w WHERE w.library_id = j.library_id AND w.job_id = j.id ORDER BY w.id DESC LIMIT 1) AS s ON true
 WHERE j.id = $1::uuid;

-- name: cancel_dedup_for_run
-- the jobs of a run that was asked to stop; of any other run none
SELECT dedup.cancel_for_run($1::bigint, $2::uuid);
