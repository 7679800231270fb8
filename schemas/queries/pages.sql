-- What the domains' pages of the console show and nothing else reads. Every listing is by keyset and reads one row more than a
-- page; what is joined to a row is joined to the rows of the page alone.

-- name: see_libraries
-- $1 the last name of the page before, $2 rows: libraries with the last walk that has ended
SELECT l.id, l.name, l.root_path, l.last_scanned_at, s.status AS scan_status, s.files_seen, s.bytes_seen,
       s.error_count AS scan_errors, s.error_code, s.error_message, s.finished_at, clock_timestamp() AS now
  FROM (SELECT x.id, x.name, x.root_path, x.last_scanned_at FROM dedup.library_roots AS x
         WHERE x.name COLLATE "C" > $1::text COLLATE "C" ORDER BY x.name COLLATE "C" LIMIT $2::integer) AS l
  LEFT JOIN LATERAL (SELECT w.status, w.files_seen, w.bytes_seen, w.error_count, w.error_code, w.error_message, w.finished_at
                       FROM dedup.scan_sessions AS w WHERE w.library_id = l.id AND w.status <> 'running'
                      ORDER BY w.id DESC LIMIT 1) AS s ON true
 ORDER BY l.name COLLATE "C";

-- name: see_library_counts
-- the files themselves, counted in one pass: asked now and then, and shown with the time of the count
SELECT x.library_id, count(*) FILTER (WHERE NOT x.is_missing) AS files,
       coalesce(sum(x.size_bytes) FILTER (WHERE NOT x.is_missing), 0)::bigint AS bytes,
       count(*) FILTER (WHERE NOT x.is_missing AND NOT x.needs_hash) AS hashed,
       count(*) FILTER (WHERE x.is_missing) AS missing,
       count(*) FILTER (WHERE x.hash_error_code IS NOT NULL AND NOT x.is_missing) AS hash_errors,
       statement_timestamp() AS counted_at
  FROM dedup.library_files AS x GROUP BY x.library_id;

-- name: see_library_work
-- $1 rows: work on libraries that has not ended, and how far it is; each state by its own index
SELECT j.id, j.library_id, j.kind, j.status, j.run_id, j.total_items, j.processed_items, j.error_code, j.error_message,
       j.started_at, j.retry_after, s.files_seen, s.bytes_seen, s.error_count,
       (SELECT w.files_seen FROM dedup.scan_sessions AS w
         WHERE w.library_id = j.library_id AND w.status = 'succeeded' ORDER BY w.id DESC LIMIT 1) AS expected
  FROM ((SELECT r.id FROM dedup.jobs AS r WHERE r.status = 'running' ORDER BY r.kind, r.id LIMIT $1::integer)
        UNION ALL
        (SELECT p.id FROM dedup.jobs AS p WHERE p.status = 'pending' ORDER BY p.kind, p.created_at, p.id LIMIT $1::integer)
        UNION ALL
        (SELECT t.id FROM dedup.jobs AS t WHERE t.status = 'retryable' ORDER BY t.retry_after LIMIT $1::integer)) AS o
  JOIN dedup.jobs AS j ON j.id = o.id
  LEFT JOIN LATERAL (SELECT w.files_seen, w.bytes_seen, w.error_count FROM dedup.scan_sessions AS w
                      WHERE w.library_id = j.library_id AND w.job_id = j.id ORDER BY w.id DESC LIMIT 1) AS s ON true
 ORDER BY (j.status = 'running') DESC, j.created_at, j.id;

-- name: see_library_jobs
-- $1 library, $2 rows, $3 how many of the newest jobs are looked at: a library nobody works on costs no more than that. How far a
-- job came is written by its beats; one that was quicker than a beat has done all there was, and a walk knows what it saw.
SELECT j.id, j.kind, j.status, j.run_id, j.requested_by, j.dry_run, j.total_items, j.error_code, j.error_message,
       j.created_at, j.started_at, j.finished_at,
       CASE WHEN j.kind = 'scan' THEN (SELECT w.files_seen FROM dedup.scan_sessions AS w
                                        WHERE w.library_id = j.library_id AND w.job_id = j.id ORDER BY w.id DESC LIMIT 1)
            WHEN j.status = 'completed' THEN coalesce(j.total_items, j.processed_items)
            ELSE j.processed_items END AS done
  FROM (SELECT x.id, x.kind, x.status, x.library_id, x.run_id, x.requested_by, x.dry_run, x.processed_items, x.total_items,
               x.error_code, x.error_message, x.created_at, x.started_at, x.finished_at
          FROM dedup.jobs AS x ORDER BY x.created_at DESC, x.id DESC LIMIT $3::integer) AS j
 WHERE j.library_id = $1::bigint ORDER BY j.created_at DESC, j.id DESC LIMIT $2::integer;

-- name: see_hash_errors
-- $1 library, $2 the last file of the page before, $3 rows: by path, behind the path of that file
SELECT f.id, f.relative_path, f.size_bytes, f.hash_error_code, f.hash_error_message, f.hash_error_count, f.hash_retry_after, f.updated_at
  FROM dedup.library_files AS f
 WHERE f.library_id = $1::bigint AND f.hash_error_code IS NOT NULL AND NOT f.is_missing
   AND f.relative_path > coalesce((SELECT x.relative_path FROM dedup.library_files AS x
                                    WHERE x.id = $2::bigint AND x.library_id = $1::bigint), '')
 ORDER BY f.relative_path LIMIT $3::integer;

-- name: see_duplicates
-- $1 to $3 the last group of the page before, $4 rows: what can be reclaimed most first, in one pass over the index alone
SELECT g.hash_algorithm, encode(g.content_hash, 'hex') AS content_hash_hex, g.files, g.size_bytes, g.waste_bytes,
       g.groups_left, g.waste_left, l.name AS library, f.relative_path, t.thumb_key, t.width, t.height
  FROM (SELECT x.hash_algorithm, x.content_hash, count(*) AS files, min(x.size_bytes) AS size_bytes,
               sum(x.size_bytes) - min(x.size_bytes) AS waste_bytes, min(x.id) AS sample_id,
               count(*) OVER () AS groups_left, sum(sum(x.size_bytes) - min(x.size_bytes)) OVER () AS waste_left
          FROM (SELECT y.hash_algorithm, y.content_hash, y.id, y.size_bytes FROM dedup.library_files AS y
                 WHERE NOT y.is_missing AND NOT y.needs_hash AND y.hash_algorithm IS NOT NULL AND y.content_hash IS NOT NULL
                 ORDER BY y.hash_algorithm, y.content_hash OFFSET 0) AS x
         GROUP BY x.hash_algorithm, x.content_hash
        HAVING count(*) > 1 AND ($1::numeric IS NULL OR sum(x.size_bytes) - min(x.size_bytes) < $1::numeric
               OR sum(x.size_bytes) - min(x.size_bytes) = $1::numeric AND (x.hash_algorithm, x.content_hash) > ($2::text, $3::bytea))
         ORDER BY waste_bytes DESC, x.hash_algorithm, x.content_hash LIMIT $4::integer) AS g
  JOIN dedup.library_files AS f ON f.id = g.sample_id
  JOIN dedup.library_roots AS l ON l.id = f.library_id
  LEFT JOIN LATERAL (SELECT n.thumb_key, n.width, n.height FROM dedup.thumbnails AS n
                      WHERE n.group_key = g.hash_algorithm || ':' || encode(g.content_hash, 'hex')
                        AND n.status = 'ready' AND n.file_id IS NOT NULL ORDER BY n.max_dimension, n.id LIMIT 1) AS t ON true
 ORDER BY g.waste_bytes DESC, g.hash_algorithm, g.content_hash;

-- name: see_library_duplicates
-- the same within library $5: groups of two or more of its files, and the figures are of these alone
SELECT g.hash_algorithm, encode(g.content_hash, 'hex') AS content_hash_hex, g.files, g.size_bytes, g.waste_bytes,
       g.groups_left, g.waste_left, l.name AS library, f.relative_path, t.thumb_key, t.width, t.height
  FROM (SELECT x.hash_algorithm, x.content_hash, count(*) AS files, min(x.size_bytes) AS size_bytes,
               sum(x.size_bytes) - min(x.size_bytes) AS waste_bytes, min(x.id) AS sample_id,
               count(*) OVER () AS groups_left, sum(sum(x.size_bytes) - min(x.size_bytes)) OVER () AS waste_left
          FROM dedup.library_files AS x
         WHERE x.library_id = $5::bigint AND NOT x.is_missing AND NOT x.needs_hash
           AND x.hash_algorithm IS NOT NULL AND x.content_hash IS NOT NULL
         GROUP BY x.hash_algorithm, x.content_hash
        HAVING count(*) > 1 AND ($1::numeric IS NULL OR sum(x.size_bytes) - min(x.size_bytes) < $1::numeric
               OR sum(x.size_bytes) - min(x.size_bytes) = $1::numeric AND (x.hash_algorithm, x.content_hash) > ($2::text, $3::bytea))
         ORDER BY waste_bytes DESC, x.hash_algorithm, x.content_hash LIMIT $4::integer) AS g
  JOIN dedup.library_files AS f ON f.id = g.sample_id
  JOIN dedup.library_roots AS l ON l.id = f.library_id
  LEFT JOIN LATERAL (SELECT n.thumb_key, n.width, n.height FROM dedup.thumbnails AS n
                      WHERE n.group_key = g.hash_algorithm || ':' || encode(g.content_hash, 'hex')
                        AND n.status = 'ready' AND n.file_id IS NOT NULL ORDER BY n.max_dimension, n.id LIMIT 1) AS t ON true
 ORDER BY g.waste_bytes DESC, g.hash_algorithm, g.content_hash;

-- name: see_duplicate
-- $1 algorithm, $2 hash: one group, and its picture where it has one
SELECT g.files, g.size_bytes, g.waste_bytes, t.thumb_key, t.width, t.height, clock_timestamp() AS now
  FROM (SELECT count(*) AS files, min(x.size_bytes) AS size_bytes, sum(x.size_bytes) - min(x.size_bytes) AS waste_bytes
          FROM dedup.library_files AS x
         WHERE NOT x.is_missing AND NOT x.needs_hash AND x.hash_algorithm = $1::text AND x.content_hash = $2::bytea
        HAVING count(*) > 0) AS g
  LEFT JOIN LATERAL (SELECT n.thumb_key, n.width, n.height FROM dedup.thumbnails AS n
                      WHERE n.group_key = $1::text || ':' || encode($2::bytea, 'hex')
                        AND n.status = 'ready' AND n.file_id IS NOT NULL ORDER BY n.max_dimension DESC, n.id LIMIT 1) AS t ON true;

-- name: see_repositories
-- $1 the last name of the page before, $2 repositories, $3 one name or NULL: each source of each, its cursor and its newest run
SELECT p.repo_id, p.name, p.repo_type, p.url, p.project_key, p.default_branch, p.config_json, p.created_at, t.source_type, t.status,
       t.priority, t.cron_expr, t.config_json AS task_json, t.consecutive_failures, t.next_run_at, k.value AS cursor,
       k.updated_at AS cursor_at, t.head_ts, r.run_id, r.status AS run_status, r.mode, r.started_at, r.finished_at, r.stats_json,
       r.error_json, r.retry_after, r.worker_id, clock_timestamp() AS now
  FROM (SELECT x.repo_id, x.name, x.repo_type, x.url, x.project_key, x.default_branch, x.config_json, x.created_at FROM scm.repos AS x
         WHERE x.name > $1::text AND ($3::text IS NULL OR x.name = $3::text) ORDER BY x.name LIMIT $2::integer) AS p
  LEFT JOIN scm.sync_tasks AS t ON t.repo_id = p.repo_id
  LEFT JOIN scm.sync_runs AS r ON r.run_id = t.last_run_id
  LEFT JOIN logbook.kv AS k ON k.namespace = 'scm.sync' AND k.key = t.source_type || '_cursor:' || t.repo_id
 ORDER BY p.name, t.source_type;

-- name: see_sync_runs
-- $1 repository, $2 and $3 the last run of the page before, $4 rows; of each source the newest, by its index
SELECT r.run_id, t.source_type, r.status, r.mode, r.started_at, r.finished_at, r.watermark_start, r.watermark_end, r.watermark,
       r.stats_json, r.error_json, r.worker_id, r.attempts, r.max_attempts, r.requested_by, r.requested_by_run
  FROM scm.sync_tasks AS t
 CROSS JOIN LATERAL (
       SELECT x.run_id, x.status, x.mode, x.started_at, x.finished_at, x.watermark_start, x.watermark_end, x.watermark, x.stats_json,
              x.error_json, x.worker_id, x.attempts, x.max_attempts, x.requested_by, x.requested_by_run
         FROM scm.sync_runs AS x
        WHERE x.task_id = t.task_id AND x.started_at <= coalesce($2::timestamptz, 'infinity')
          AND (x.started_at, x.run_id) < (coalesce($2::timestamptz, 'infinity'), coalesce($3::text, ''))
        ORDER BY x.started_at DESC, x.run_id DESC LIMIT $4::integer) AS r
 WHERE t.repo_id = $1::bigint ORDER BY r.started_at DESC, r.run_id DESC LIMIT $4::integer;

-- name: see_revisions
-- $1 repository, $2 the last revision of the page before, $3 rows; the newest first, each with its diff
SELECT s.rev_num, s.author_raw, s.author_user_id, s.ts, s.message, s.bulk_reason, s.meta_json -> 'diff' ->> 'degraded' AS degraded,
       b.uri, b.sha256, b.size_bytes, b.meta_json ->> 'evidence_uri' AS evidence_uri
  FROM (SELECT x.repo_id, x.rev_num, x.author_raw, x.author_user_id, x.ts, x.message, x.bulk_reason, x.meta_json FROM scm.svn_revisions AS x
         WHERE x.repo_id = $1::bigint AND x.rev_num < $2::bigint ORDER BY x.rev_num DESC LIMIT $3::integer) AS s
  LEFT JOIN scm.patch_blobs AS b ON b.source_type = 'svn' AND b.source_id = s.repo_id::text || ':' || s.rev_num::text
 ORDER BY s.rev_num DESC;

-- name: see_commits
-- $1 repository, $2 and $3 the last commit of the page before, $4 rows; the newest first, each with its diff
SELECT s.commit_sha, s.author_raw, s.author_user_id, s.ts, s.message, s.is_merge, s.bulk_reason,
       s.meta_json -> 'diff' ->> 'degraded' AS degraded, b.uri, b.sha256, b.size_bytes, b.meta_json ->> 'evidence_uri' AS evidence_uri
  FROM (SELECT x.repo_id, x.commit_sha, x.author_raw, x.author_user_id, x.ts, x.message, x.is_merge, x.bulk_reason, x.meta_json
          FROM scm.git_commits AS x
         WHERE x.repo_id = $1::bigint AND x.ts <= coalesce($2::timestamptz, 'infinity')
           AND (x.ts, x.commit_sha) < (coalesce($2::timestamptz, 'infinity'), coalesce($3::text, ''))
         ORDER BY x.ts DESC, x.commit_sha DESC LIMIT $4::integer) AS s
  LEFT JOIN scm.patch_blobs AS b ON b.source_type = 'git' AND b.source_id = s.repo_id::text || ':' || s.commit_sha
 ORDER BY s.ts DESC, s.commit_sha DESC;

-- name: see_merge_requests
-- $1 repository, $2 and $3 the last one of the page before, $4 rows; by last change, which every one of them has
SELECT m.iid, m.author_raw, m.author_user_id, m.status, m.url, m.meta_json ->> 'title' AS title, m.source_created_at,
       m.source_updated_at, v.events, v.approvals
  FROM (SELECT x.mr_id, x.iid, x.author_raw, x.author_user_id, x.status, x.url, x.meta_json, x.source_created_at, x.source_updated_at
          FROM scm.mrs AS x
         WHERE x.repo_id = $1::bigint AND x.source_updated_at <= coalesce($2::timestamptz, 'infinity')
           AND (x.source_updated_at, x.iid) < (coalesce($2::timestamptz, 'infinity'), coalesce($3::bigint, 0))
         ORDER BY x.source_updated_at DESC, x.iid DESC LIMIT $4::integer) AS m
 CROSS JOIN LATERAL (SELECT count(*) AS events, count(*) FILTER (WHERE e.event_type = 'approve') AS approvals
                       FROM scm.review_events AS e WHERE e.mr_id = m.mr_id) AS v
 ORDER BY m.source_updated_at DESC, m.iid DESC;

-- name: see_media
-- $1 workspace and $2 type of entity, or NULL; $3 before this ref, $4 rows, of the $5 newest there: with the rendition to show
SELECT f.id, f.workspace_id, f.entity_type, f.entity_id, f.role, f.position, f.blob_hash, b.mime_type, b.file_size, f.created_by,
       f.created_at, v.blob_hash AS small_hash
  FROM (SELECT r.id, r.workspace_id, r.entity_type, r.entity_id, r.role, r.position, r.blob_hash, r.created_by, r.created_at
          FROM (SELECT n.id, n.workspace_id, n.entity_type, n.entity_id, n.role, n.position, n.blob_hash, n.created_by, n.created_at,
                       n.deleted_at, n.source_ref_id
                  FROM public.media_refs AS n WHERE n.id < coalesce($3::bigint, 9223372036854775807)
                 ORDER BY n.id DESC LIMIT $5::integer) AS r
         WHERE r.deleted_at IS NULL AND r.source_ref_id IS NULL AND ($1::text IS NULL OR r.workspace_id = $1::text)
           AND ($2::text IS NULL OR r.entity_type = $2::text)
         ORDER BY r.id DESC LIMIT $4::integer) AS f
  JOIN public.media_blobs AS b ON b.file_hash = f.blob_hash
  LEFT JOIN LATERAL (SELECT x.blob_hash FROM public.media_refs AS x LEFT JOIN media.rendition_rules AS n ON n.name = x.rendition
                      WHERE x.source_ref_id = f.id AND x.deleted_at IS NULL
                      ORDER BY n.max_dimension >= 240 DESC NULLS LAST, n.max_dimension LIMIT 1) AS v ON true
 ORDER BY f.id DESC;

-- name: see_media_reach
-- how far a look went; no row = to the first ref there is
SELECT n.id FROM public.media_refs AS n WHERE n.id < coalesce($1::bigint, 9223372036854775807)
 ORDER BY n.id DESC OFFSET $2::integer - 1 LIMIT 1;

-- name: see_entity_slots
-- $1 workspace or NULL, $2 and $3 entity, $4 to $6 behind this slot and ref, $7 rows: each with the rendition to show
SELECT f.id, f.workspace_id, f.entity_type, f.entity_id, f.role, f.position, f.blob_hash, b.mime_type, b.file_size, f.source_ref_id,
       f.rendition, f.created_by, f.created_at, v.blob_hash AS small_hash
  FROM (SELECT r.id, r.workspace_id, r.entity_type, r.entity_id, r.role, r.position, r.blob_hash, r.source_ref_id, r.rendition,
               r.created_by, r.created_at
          FROM public.media_refs AS r
         WHERE ($1::text IS NULL OR r.workspace_id = $1::text) AND r.entity_type = $2::text AND r.entity_id = $3::text
           AND r.deleted_at IS NULL AND (r.role, r.position, r.id) > ($4::text, $5::integer, $6::bigint)
         ORDER BY r.role, r.position, r.id LIMIT $7::integer) AS f
  JOIN public.media_blobs AS b ON b.file_hash = f.blob_hash
  LEFT JOIN LATERAL (SELECT x.blob_hash FROM public.media_refs AS x LEFT JOIN media.rendition_rules AS n ON n.name = x.rendition
                      WHERE x.source_ref_id = f.id AND x.deleted_at IS NULL
                      ORDER BY n.max_dimension >= 240 DESC NULLS LAST, n.max_dimension LIMIT 1) AS v ON true
 ORDER BY f.role, f.position, f.id;

-- name: see_entity_writes
-- $1 workspaces, $2 and $3 entity, $4 rows: how its writes ended, the newest first
SELECT e.id, e.request_id, e.created_at, e.result::text AS result, e.error_code, e.error_message, e.actor, e.principal, e.role, e.position, e.ref_id
  FROM public.media_write_events AS e
 WHERE e.workspace_id = ANY ($1::text[]) AND e.entity_type = $2::text AND e.entity_id = $3::text AND e.event_type = 'WRITE_RESULT'
 ORDER BY e.id DESC LIMIT $4::integer;

-- name: see_blob_writes
-- $1 content, $2 rows: how the writes that named it ended, the newest first
SELECT e.id, e.request_id, e.created_at, e.result::text AS result, e.error_code, e.error_message, e.actor, e.principal, e.role, e.position, e.ref_id
  FROM public.media_write_events AS e
 WHERE e.blob_hash = $1::text AND e.event_type = 'WRITE_RESULT' ORDER BY e.id DESC LIMIT $2::integer;

-- name: see_captures
-- $1 state or NULL, $2 and $3 after this session, $4 rows, of the $5 newest there: with how many pictures and what came of it
SELECT f.id, f.user_id, f.state, f.error, f.created_at, f.locked_at, f.locked_by, v.schedule_date, v.version,
       jsonb_array_length(CASE jsonb_typeof(v.payload -> 'entries') WHEN 'array' THEN v.payload -> 'entries' ELSE '[]' END) AS entries,
       i.images, i.first_image
  FROM (SELECT s.id, s.user_id, s.state::text AS state, s.error, s.created_at, s.locked_at, s.locked_by
          FROM (SELECT n.id, n.user_id, n.state, n.error, n.created_at, n.locked_at, n.locked_by
                  FROM schedule_ingest.capture_session AS n
                 WHERE $2::timestamptz IS NULL OR (n.created_at, n.id) < ($2::timestamptz, $3::uuid)
                 ORDER BY n.created_at DESC, n.id DESC LIMIT $5::integer) AS s
         WHERE $1::text IS NULL OR s.state::text = $1::text
         ORDER BY s.created_at DESC, s.id DESC LIMIT $4::integer) AS f
  LEFT JOIN schedule_ingest.schedule_version AS v ON v.session_id = f.id
 CROSS JOIN LATERAL (SELECT count(*) AS images, min(x.sequence) AS first_image FROM schedule_ingest.capture_image AS x
                      WHERE x.session_id = f.id) AS i
 ORDER BY f.created_at DESC, f.id DESC;

-- name: see_user_captures
-- the same of user $6 alone, by the index of users
SELECT f.id, f.user_id, f.state, f.error, f.created_at, f.locked_at, f.locked_by, v.schedule_date, v.version,
       jsonb_array_length(CASE jsonb_typeof(v.payload -> 'entries') WHEN 'array' THEN v.payload -> 'entries' ELSE '[]' END) AS entries,
       i.images, i.first_image
  FROM (SELECT s.id, s.user_id, s.state::text AS state, s.error, s.created_at, s.locked_at, s.locked_by
          FROM (SELECT n.id, n.user_id, n.state, n.error, n.created_at, n.locked_at, n.locked_by
                  FROM schedule_ingest.capture_session AS n
                 WHERE n.user_id = $6::bigint AND ($2::timestamptz IS NULL OR (n.created_at, n.id) < ($2::timestamptz, $3::uuid))
                 ORDER BY n.created_at DESC, n.id DESC LIMIT $5::integer) AS s
         WHERE $1::text IS NULL OR s.state::text = $1::text
         ORDER BY s.created_at DESC, s.id DESC LIMIT $4::integer) AS f
  LEFT JOIN schedule_ingest.schedule_version AS v ON v.session_id = f.id
 CROSS JOIN LATERAL (SELECT count(*) AS images, min(x.sequence) AS first_image FROM schedule_ingest.capture_image AS x
                      WHERE x.session_id = f.id) AS i
 ORDER BY f.created_at DESC, f.id DESC;

-- name: see_capture_reach
-- $1 and $2 after this session, $3 how far was looked; no row = to the first session there is
SELECT n.created_at, n.id FROM schedule_ingest.capture_session AS n
 WHERE $1::timestamptz IS NULL OR (n.created_at, n.id) < ($1::timestamptz, $2::uuid)
 ORDER BY n.created_at DESC, n.id DESC OFFSET $3::integer - 1 LIMIT 1;

-- name: see_user_capture_reach
-- the same of user $4 alone
SELECT n.created_at, n.id FROM schedule_ingest.capture_session AS n
 WHERE n.user_id = $4::bigint AND ($1::timestamptz IS NULL OR (n.created_at, n.id) < ($1::timestamptz, $2::uuid))
 ORDER BY n.created_at DESC, n.id DESC OFFSET $3::integer - 1 LIMIT 1;
