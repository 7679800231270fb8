-- name: plan_hash
-- makes batches of the files in one stretch of ids that need a hash
SELECT p.last_id, p.queued FROM dedup.plan_hash($1::uuid, $2::uuid, $3::bigint, $4::integer, $5::integer, $6::bigint) AS p;

-- name: read_hash_left
-- how much of a job is still to be hashed; only the batches that wait or run are read
SELECT coalesce(sum(f.hash_files), 0)::bigint AS remaining, count(*) AS batches FROM (
    SELECT f.hash_files FROM dedup.library_files AS f WHERE f.hash_status = 'pending' AND f.hash_job_id = $1::uuid
    UNION ALL
    -- also what somebody still works on for a job before this one: its files are planned again when he has ended
    SELECT f.hash_files FROM dedup.library_files AS f WHERE f.hash_status = 'running') AS f;

-- name: read_hash_batch
-- the files of a batch that are to be read now
SELECT b.id, b.library_id, b.root_path, b.relative_path, b.size_bytes, b.mtime_ns, b.inode, b.algorithm, b.is_prefix
  FROM dedup.read_hash_batch($1::bigint, $2::uuid, $3::bigint) AS b;

-- name: record_hashes
-- what was found out about some of them
SELECT dedup.record_hashes($1::bigint, $2::uuid, $3::text, $4::text::bigint[], $5::text::bigint[], $6::text::bigint[],
       $7::text::bigint[], $8::bytea[], $9::bytea[], $10::text[]);

-- name: count_thumbnails_left
-- how many thumbnails of a library are still to be made
SELECT count(*) FROM dedup.thumbnails AS t JOIN dedup.library_files AS f ON f.id = t.file_id
 WHERE t.status IN ('pending', 'running') AND f.library_id = $1::bigint;

-- name: read_job_total
-- how much a job has asked for
SELECT coalesce(j.total_items, 0) AS total_items FROM dedup.jobs AS j WHERE j.id = $1::uuid;

-- name: reserve_io
-- $1 bucket, $2 milliseconds the reading takes of the budget: how long to wait before it; a missing bucket is made
INSERT INTO dedup.io_rate_limits AS b (bucket_key, next_available_at_ms)
VALUES ($1::text, (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $2::bigint)
ON CONFLICT (bucket_key) DO UPDATE
   SET next_available_at_ms = greatest(b.next_available_at_ms, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) + $2::bigint,
       updated_at = clock_timestamp()
RETURNING b.next_available_at_ms - $2::bigint - (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS wait_ms;

-- name: read_thumbnail_rate
-- bytes a second, of all replicas together
SELECT (s.value)::text::double precision FROM supervisor.setting AS s WHERE s.name = 'dedup_thumbnail_bytes_per_second';
