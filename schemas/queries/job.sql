-- name: save_job
-- Fields that the specification names are set; a new job takes the defaults for the others.
SELECT to_jsonb(d) - 'removed_at' AS job FROM supervisor.save_job($1::text, $2::text, $3::text::jsonb, $4::boolean) AS d

-- name: remove_job
-- Marks it; its runs stay.
SELECT supervisor.remove_job($1::text, $2::text) AS id

-- name: show_job
-- A definition with its live runs by state, and its newest run.
SELECT to_jsonb(d) - 'removed_at' || jsonb_build_object(
    'live', (SELECT coalesce(jsonb_object_agg(s.state, s.runs), '{}') FROM (
        SELECT r.state, count(*) AS runs FROM supervisor.job_run r
        WHERE r.job_definition_id = d.id AND r.state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED')
        GROUP BY r.state) s)) AS job, clock_timestamp() AS now
FROM supervisor.job_definition d
WHERE d.name = $1::text AND d.removed_at IS NULL

-- name: list_jobs
-- Every definition, with how many of its runs have not ended.
WITH live AS MATERIALIZED (
    SELECT r.job_definition_id AS id, count(*) AS live FROM supervisor.job_run r
    WHERE r.state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED') GROUP BY 1
)
SELECT d.id, d.name, d.domain, d.action, d.enabled, d.priority, d.max_attempts, d.timeout_seconds, d.concurrency,
    d.backoff_seconds, d.backoff_max_seconds, d.created_at, d.updated_at, coalesce(l.live, 0) AS live,
    clock_timestamp() AS now
FROM supervisor.job_definition d
LEFT JOIN live l ON l.id = d.id
WHERE d.removed_at IS NULL
ORDER BY d.name

-- name: enqueue_run
-- A repeated key answers with the run that was made first.
SELECT id, state, created FROM supervisor.enqueue($1::text, $2::text::jsonb, $3::text, $4::timestamptz, $5::integer)
