-- Names that a shell completes, and that a misspelt one is compared with.

-- name: complete_jobs
-- Jobs whose name begins so, by name.
SELECT d.name FROM supervisor.job_definition d
WHERE d.removed_at IS NULL AND starts_with(d.name, $1::text) ORDER BY d.name LIMIT $2::integer

-- name: complete_runs
-- The newest runs: the ones that somebody asks about.
SELECT r.id, r.state, d.name AS job FROM supervisor.job_run r
LEFT JOIN supervisor.job_definition d ON d.id = r.job_definition_id
ORDER BY r.id DESC LIMIT $1::integer

-- name: complete_workers
-- Replicas that have not left.
SELECT w.worker_id, w.state FROM supervisor.worker w WHERE w.state <> 'gone' ORDER BY w.worker_id LIMIT $1::integer
