-- What the command line of the dedup domain asks. Groups are read as the HTTP API reads them (dedup_read.sql).

-- name: list_libraries
-- with the last walk over each
SELECT l.id, l.name, l.root_path AS path, l.last_scanned_at, l.created_at, s.status AS last_scan, s.files_seen AS files,
       s.bytes_seen AS bytes, clock_timestamp() AS now
  FROM dedup.library_roots AS l
  LEFT JOIN LATERAL (SELECT w.status, w.files_seen, w.bytes_seen FROM dedup.scan_sessions AS w
                      WHERE w.library_id = l.id ORDER BY w.id DESC LIMIT 1) AS s ON true
 ORDER BY l.name;

-- name: read_library_status
-- one library or all; counted from the files themselves, so it may take its time
SELECT l.name, l.root_path AS path, l.last_scanned_at, coalesce(f.files, 0) AS files, coalesce(f.bytes, 0) AS bytes,
       coalesce(f.missing, 0) AS missing, coalesce(f.to_hash, 0) AS to_hash, coalesce(f.hash_errors, 0) AS hash_errors,
       s.id AS scan_id, s.status AS scan_status, s.started_at AS scan_started_at, s.finished_at AS scan_finished_at,
       s.files_seen, s.bytes_seen, s.files_new, s.files_changed, s.files_moved, s.files_missing, s.error_count,
       s.error_code AS scan_error_code, s.error_message AS scan_error_message,
       j.id AS job_id, j.kind AS job_kind, j.status AS job_status, j.progress AS job_progress,
       j.processed_items AS job_processed_items, j.total_items AS job_total_items, clock_timestamp() AS now
  FROM dedup.library_roots AS l
  LEFT JOIN (
       SELECT x.library_id, count(*) FILTER (WHERE NOT x.is_missing) AS files,
              coalesce(sum(x.size_bytes) FILTER (WHERE NOT x.is_missing), 0)::bigint AS bytes,
              count(*) FILTER (WHERE x.is_missing) AS missing,
              count(*) FILTER (WHERE x.needs_hash AND NOT x.is_missing) AS to_hash,
              count(*) FILTER (WHERE x.hash_error_code IS NOT NULL AND NOT x.is_missing) AS hash_errors
         FROM dedup.library_files AS x
        WHERE $1::text IS NULL OR x.library_id = (SELECT n.id FROM dedup.library_roots AS n WHERE n.name = $1::text)
        GROUP BY x.library_id) AS f ON f.library_id = l.id
  LEFT JOIN LATERAL (
       SELECT w.id, w.status, w.started_at, w.finished_at, w.files_seen, w.bytes_seen, w.files_new, w.files_changed,
              w.files_moved, w.files_missing, w.error_count, w.error_code, w.error_message
         FROM dedup.scan_sessions AS w WHERE w.library_id = l.id ORDER BY w.id DESC LIMIT 1) AS s ON true
  LEFT JOIN LATERAL (
       SELECT a.id, a.kind, a.status, a.progress, a.processed_items, a.total_items FROM dedup.jobs AS a
        WHERE a.library_id = l.id AND a.status IN ('pending', 'running', 'retryable')
        ORDER BY (a.status = 'running') DESC, a.created_at, a.id LIMIT 1) AS j ON true
 WHERE $1::text IS NULL OR l.name = $1::text
 ORDER BY l.name;

-- name: walk_scan_errors
-- what the last walk over a library could not read, by path: each page begins behind the last path of the one before
SELECT 'scan' AS stage, e.path, e.code, NULL::text AS message, e.at FROM dedup.scan_errors AS e
 WHERE e.session_id = (SELECT max(s.id) FROM dedup.scan_sessions AS s WHERE s.library_id = $1::bigint)
   AND e.path > $2::text COLLATE "C"
 ORDER BY e.path LIMIT $3::integer;

-- name: walk_hash_errors
-- files of a library that could not be hashed, by path
SELECT 'hash' AS stage, f.relative_path AS path, f.hash_error_code AS code, f.hash_error_message AS message, f.updated_at AS at
  FROM dedup.library_files AS f
 WHERE f.library_id = $1::bigint AND f.hash_error_code IS NOT NULL AND NOT f.is_missing
   AND f.relative_path > $2::text COLLATE "C"
 ORDER BY f.relative_path LIMIT $3::integer;

-- name: list_jobs_of_run
-- the work of a run, whichever attempt asked for it, and how far it is
SELECT j.id, j.kind, l.name AS library, j.status, j.progress, j.total_items, j.processed_items, j.error_code, j.error_message,
       s.files_seen, s.bytes_seen, s.files_new, s.files_changed, s.files_moved, s.files_missing, s.error_count,
       extract(epoch FROM coalesce(j.finished_at, clock_timestamp()) - j.started_at)::double precision AS seconds,
       (SELECT w.files_seen FROM dedup.scan_sessions AS w
         WHERE w.library_id = j.library_id AND w.status = 'succeeded' AND w.job_id IS DISTINCT FROM j.id
         ORDER BY w.id DESC LIMIT 1) AS expected
  FROM supervisor.job_run AS r
  JOIN dedup.jobs AS j ON j.run_id = r.root_id
  LEFT JOIN dedup.library_roots AS l ON l.id = j.library_id
  LEFT JOIN LATERAL (
       SELECT w.files_seen, w.bytes_seen, w.files_new, w.files_changed, w.files_moved, w.files_missing, w.error_count
         FROM dedup.scan_sessions AS w WHERE w.library_id = j.library_id AND w.job_id = j.id ORDER BY w.id DESC LIMIT 1) AS s ON true
 WHERE r.id = $1::bigint
 ORDER BY j.created_at, j.id;

-- name: read_dedup_workforce
-- who could work: is there a leader, and how many replicas of this domain were heard within $1 seconds
SELECT EXISTS (SELECT FROM supervisor.leader_lease AS l WHERE l.expires_at > clock_timestamp()) AS has_leader,
       (SELECT count(*) FROM supervisor.worker AS w WHERE w.state = 'active' AND 'dedup' = ANY (w.domains)
           AND w.heartbeat_at > clock_timestamp() - make_interval(secs => $1::double precision)) AS replicas;

-- name: list_files_of_groups
-- all files of a few small groups, in the order of the groups
SELECT g.place, f.id, l.name AS library, f.relative_path, f.size_bytes
  FROM unnest($2::text[], $3::bytea[]) WITH ORDINALITY AS g (hash_algorithm, content_hash, place)
  JOIN dedup.library_files AS f ON f.hash_algorithm = g.hash_algorithm AND f.content_hash = g.content_hash
   AND NOT f.is_missing AND NOT f.needs_hash AND f.hash_algorithm IS NOT NULL AND f.content_hash IS NOT NULL
  JOIN dedup.library_roots AS l ON l.id = f.library_id
 WHERE $1::bigint IS NULL OR f.library_id = $1::bigint
 ORDER BY g.place, f.id;

-- name: walk_files_of_group
-- a page of one large group, behind an id
SELECT f.id, l.name AS library, f.relative_path, f.size_bytes
  FROM dedup.library_files AS f JOIN dedup.library_roots AS l ON l.id = f.library_id
 WHERE f.hash_algorithm = $2::text AND f.content_hash = $3::bytea AND f.id > $4::bigint
   AND NOT f.is_missing AND NOT f.needs_hash AND ($1::bigint IS NULL OR f.library_id = $1::bigint)
 ORDER BY f.id LIMIT $5::integer;

-- name: list_removals
-- the files a deletion names, and what became of each
SELECT f.id, l.name AS library, f.relative_path, f.size_bytes, f.id = $2::bigint AS keep, f.trash_path
  FROM dedup.library_files AS f JOIN dedup.library_roots AS l ON l.id = f.library_id
 WHERE f.id = ANY ($1::bigint[]) ORDER BY f.id;

-- name: show_thumbnail
-- by its key
SELECT t.thumb_key, t.file_id, t.group_key, t.status, t.media_type, t.format, t.max_dimension, t.output_relpath, t.width,
       t.height, t.bytes_size, t.error_code, t.error_message, t.error_count, t.retry_after, t.created_at, t.finished_at,
       l.name AS library, f.relative_path, clock_timestamp() AS now
  FROM dedup.thumbnails AS t JOIN dedup.library_files AS f ON f.id = t.file_id
  JOIN dedup.library_roots AS l ON l.id = f.library_id
 WHERE t.thumb_key = $1::text;
