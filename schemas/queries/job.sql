-- name: save_job
-- Fields that the specification names are set; a new job takes the defaults for the others.
SELECT to_jsonb(d) - '{removed_at,fired_until}'::text[]
    || jsonb_build_object('next_fire_at', CASE WHEN d.cron IS NOT NULL THEN nullif(d.next_fire_at, '-infinity') END)
    AS job, clock_timestamp() AS now
FROM supervisor.save_job($1::text, $2::text, $3::text::jsonb, $4::boolean, $5::boolean) AS d

-- name: remove_job
-- Marks it; its runs stay.
SELECT supervisor.remove_job($1::text, $2::text, $3::boolean) AS id

-- name: show_job
-- A definition with its live runs by state, when it fired last, and what it skipped.
SELECT to_jsonb(d) - '{removed_at,fired_until}'::text[] || jsonb_build_object(
    'next_fire_at', CASE WHEN d.cron IS NOT NULL THEN nullif(d.next_fire_at, '-infinity') END,
    'last_fire_at', (SELECT r.scheduled_for FROM supervisor.job_run r
        WHERE r.job_definition_id = d.id AND r.scheduled_for IS NOT NULL ORDER BY r.scheduled_for DESC LIMIT 1),
    'skipped', (SELECT coalesce(sum(s.instants), 0) FROM supervisor.skipped_fire s WHERE s.job_definition_id = d.id),
    'last_skipped', (SELECT to_jsonb(s) - '{id,job_definition_id}'::text[] FROM supervisor.skipped_fire s
        WHERE s.job_definition_id = d.id ORDER BY s.id DESC LIMIT 1),
    'live', (SELECT coalesce(jsonb_object_agg(s.state, s.runs), '{}') FROM (
        SELECT r.state, count(*) AS runs FROM supervisor.job_run r
        WHERE r.job_definition_id = d.id AND r.state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED')
        GROUP BY r.state) s)) AS job, clock_timestamp() AS now
FROM supervisor.job_definition d
WHERE d.name = $1::text AND d.removed_at IS NULL

-- name: list_jobs
-- Every definition, with how many of its runs have not ended, and when it fires.
WITH live AS MATERIALIZED (
    SELECT r.job_definition_id AS id, count(*) AS live FROM supervisor.job_run r
    WHERE (r.state IN ('PENDING', 'ORPHANED') OR r.state IN ('ASSIGNED', 'RUNNING')) GROUP BY 1
), skipped AS MATERIALIZED (
    SELECT s.job_definition_id AS id, sum(s.instants) AS skipped FROM supervisor.skipped_fire s GROUP BY 1
)
SELECT d.id, d.name, d.domain, d.action, d.enabled, d.cron, d.timezone, d.missed, d.event_type, d.schedule_error,
    CASE WHEN d.cron IS NOT NULL THEN nullif(d.next_fire_at, '-infinity') END AS next_fire_at,
    (SELECT r.scheduled_for FROM supervisor.job_run r WHERE r.job_definition_id = d.id AND r.scheduled_for IS NOT NULL
     ORDER BY r.scheduled_for DESC LIMIT 1) AS last_fire_at, coalesce(s.skipped, 0)::bigint AS skipped,
    d.priority, d.max_attempts, d.timeout_seconds, d.concurrency, d.concurrency_policy, d.backoff_seconds,
    d.backoff_max_seconds, d.created_at, d.updated_at, coalesce(l.live, 0) AS live, clock_timestamp() AS now
FROM supervisor.job_definition d
LEFT JOIN live l ON l.id = d.id
LEFT JOIN skipped s ON s.id = d.id
WHERE d.removed_at IS NULL
ORDER BY d.name

-- name: list_definitions
-- What `job apply` compares its file with; seen tells whether a definition was changed since.
SELECT d.name, to_jsonb(d) AS job, (extract(epoch FROM d.updated_at) * 1000000)::bigint AS seen
FROM supervisor.job_definition d WHERE d.removed_at IS NULL ORDER BY d.name

-- name: apply_jobs
-- All of it or nothing; refused when the definitions are not those the difference was shown for.
SELECT name, what FROM supervisor.apply_jobs($1::text, $2::text::jsonb, $3::boolean, $4::text::jsonb)

-- name: enqueue_runs
-- Many runs of one job, in the order of the call.
SELECT id, state, created
FROM supervisor.enqueue_many($1::text, $2::text[]::jsonb[], $3::text[], $4::timestamptz, $5::integer) ORDER BY place

-- name: enqueue_run
-- A repeated key answers with the run that was made first.
SELECT id, state, created FROM supervisor.enqueue($1::text, $2::text::jsonb, $3::text, $4::timestamptz, $5::integer)
