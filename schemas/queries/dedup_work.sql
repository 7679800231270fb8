-- What the workers of the dedup domain and the leader ask; each moves nothing without its claim or epoch.

-- name: return_retryable_jobs
-- the leader's part: what is due again goes back to pending
SELECT dedup.return_retryable($1::bigint);

-- name: drop_unwanted_hashes
-- the leader's part: files that wait for a job which is over
SELECT dedup.drop_unwanted_hashes($1::bigint);

-- name: retry_failed_thumbnails
-- the leader's part: failed thumbnails whose time has come
SELECT dedup.retry_thumbnails($1::bigint);

-- name: cancel_jobs_of_ended_runs
-- the leader's part: jobs whose run was cancelled while nobody worked on it
SELECT dedup.cancel_for_ended_runs($1::bigint);

-- name: purge_dedup
-- the leader's part: a step of what is over and kept no longer
SELECT dedup.purge($1::bigint);

-- name: request_dedup_for_run
-- the same run gets the same job, however often it asks
SELECT j.id, j.status, j.progress, j.total_items, j.processed_items, j.error_code, j.error_message
  FROM dedup.request_for_run($1::bigint, $2::uuid, $3::text, $4::text, $5::text::jsonb) AS j;

-- name: begin_scan
-- a new walk, or the one that was cut
SELECT s.session_id, s.library, s.root_path, s.cursor_path, s.batches, s.files_seen FROM dedup.begin_scan($1::uuid, $2::uuid) AS s;

-- name: record_scan
-- one stretch of the walk
SELECT s.files_new, s.files_changed, s.files_missing, s.reached
  FROM dedup.record_scan($1::uuid, $2::uuid, $3::bigint, $4::integer, $5::text, $6::text, $7::boolean, $8::text[],
       $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::bytea[], $14::text[],
       $15::text[], $16::text[], $17::bigint, $18::bigint) AS s;

-- name: find_known
-- the first path behind one that the table knows
SELECT dedup.find_known($1::uuid, $2::uuid, $3::text);

-- name: fold_moves
-- moved files keep their rows; a part at a time
SELECT m.last_id, m.folded FROM dedup.fold_moves($1::uuid, $2::uuid, $3::bigint, $4::bigint, $5::integer) AS m;

-- name: end_scan
-- with an error code it has failed
SELECT s.id, s.status, s.files_seen, s.directories_seen, s.bytes_seen, s.error_count, s.files_new, s.files_changed, s.files_moved,
       s.files_missing FROM dedup.end_scan($1::uuid, $2::uuid, $3::bigint, $4::text, $5::text) AS s;

-- name: read_deletion
-- the file that stays and those that go
SELECT d.id, d.keep, d.library, d.root_path, d.relative_path, d.size_bytes, d.mtime_ns, d.hash_algorithm, d.content_hash,
       d.trash_path, d.gone FROM dedup.read_deletion($1::uuid, $2::uuid) AS d;

-- name: trash_file
-- leave to move it; false: it is not the same any more, or nothing of its content would stay
SELECT dedup.trash_file($1::uuid, $2::uuid, $3::bigint, $4::text);

-- name: untrash_file
-- it could not be moved
SELECT dedup.untrash_file($1::uuid, $2::uuid, $3::bigint);

-- name: request_thumbnails
-- a stretch of a library, as far as there is room
SELECT t.last_id, t.queued, t.is_full FROM dedup.request_thumbnails($1::uuid, $2::uuid, $3::bigint, $4::integer) AS t;

-- name: read_thumbnail_sources
-- where the originals are
SELECT f.id, l.root_path, f.relative_path, f.size_bytes, f.mtime_ns, f.is_missing
  FROM dedup.library_files AS f JOIN dedup.library_roots AS l ON l.id = f.library_id WHERE f.id = ANY ($1::bigint[]);

-- name: read_cleanup
-- ended thumbnails of the group
SELECT c.id, c.output_relpath FROM dedup.read_cleanup($1::bigint, $2::uuid, $3::integer) AS c;

-- name: remove_thumbnails
-- their rows, after their files
SELECT dedup.remove_thumbnails($1::bigint, $2::uuid, $3::bigint[]);
