-- name: list_capture_images
-- the pictures of a session, in the order they were taken
SELECT i.sequence, i.r2_key, i.sha256, i.size_bytes FROM schedule_ingest.capture_image AS i
 WHERE i.session_id = $1::uuid ORDER BY i.sequence;

-- name: read_capture_policy
-- how sessions are read today
SELECT now() AS now, bool_or(s.value::boolean) FILTER (WHERE s.name = 'capture_skip_unchanged') AS skip_unchanged,
       max(s.value::bigint) FILTER (WHERE s.name = 'capture_max_images') AS max_images,
       max(s.value::bigint) FILTER (WHERE s.name = 'capture_max_bytes') AS max_bytes
  FROM supervisor.setting AS s
 WHERE s.name IN ('capture_skip_unchanged', 'capture_max_images', 'capture_max_bytes');

-- name: give_capture_back
-- another worker may take it at once; only under the claim that stands in it
SELECT schedule_ingest.give_back($1::uuid, $2::uuid);

-- name: list_capture_references
-- which artifacts are pictures of sessions
SELECT i.image_no AS id, i.r2_key AS ref, i.sha256, i.size_bytes AS size
  FROM schedule_ingest.capture_image AS i WHERE i.image_no > $1::bigint ORDER BY i.image_no LIMIT $2::integer;

-- name: submit_capture
-- a session and its pictures at once
SELECT * FROM schedule_ingest.submit($1::text, $2::uuid, $3::bigint, $4::text::jsonb);

-- name: refuse_capture
-- an operator's word that a session is not to be read
SELECT schedule_ingest.refuse_session($1::text, $2::uuid, $3::text);

-- name: show_capture
-- a session as its submitter sees it
SELECT s.id AS session_id, s.user_id, s.state::text AS state, s.error, s.created_at, s.locked_at, s.locked_by,
       v.schedule_date, v.version, v.payload::text AS payload, v.payload_hash,
       (SELECT count(*)::integer FROM schedule_ingest.capture_image AS i WHERE i.session_id = s.id) AS images, now() AS now
  FROM schedule_ingest.capture_session AS s LEFT JOIN schedule_ingest.schedule_version AS v ON v.session_id = s.id
 WHERE s.id = $1::uuid;

-- name: list_captures
-- newest first; $1 only this user, $2 only in this state, $3 and $4 after this one
SELECT s.id AS session_id, s.user_id, s.state::text AS state, s.error, s.created_at, v.schedule_date, v.version, now() AS now
  FROM schedule_ingest.capture_session AS s LEFT JOIN schedule_ingest.schedule_version AS v ON v.session_id = s.id
 WHERE ($1::bigint IS NULL OR s.user_id = $1) AND ($2::text IS NULL OR s.state = $2::text::schedule_ingest.capture_session_state)
   AND ($3::timestamptz IS NULL OR (s.created_at, s.id) < ($3, $4::uuid))
 ORDER BY s.created_at DESC, s.id DESC LIMIT $5::integer;

-- name: show_schedule
-- one version of a day: the one that is asked for, else the current one
SELECT v.user_id, v.schedule_date, v.version, d.current_version, v.session_id, v.payload::text AS payload, v.payload_hash, v.created_at
  FROM schedule_ingest.day_schedule AS d
  JOIN schedule_ingest.schedule_version AS v ON v.user_id = d.user_id AND v.schedule_date = d.schedule_date
   AND v.version = coalesce($3::integer, d.current_version)
 WHERE d.user_id = $1::bigint AND d.schedule_date = $2::date;

-- name: list_schedule_versions
-- newest first; $3 before this one
SELECT v.version, v.session_id, v.payload_hash, v.created_at, jsonb_array_length(coalesce(v.payload->'entries', '[]')) AS entries
  FROM schedule_ingest.schedule_version AS v
 WHERE v.user_id = $1::bigint AND v.schedule_date = $2::date AND ($3::integer IS NULL OR v.version < $3)
 ORDER BY v.version DESC LIMIT $4::integer;

-- name: list_schedule_days
-- the days a user has a schedule for, newest first; $2 before this one
SELECT d.schedule_date, d.current_version FROM schedule_ingest.day_schedule AS d
 WHERE d.user_id = $1::bigint AND ($2::date IS NULL OR d.schedule_date < $2) ORDER BY d.schedule_date DESC LIMIT $3::integer;
