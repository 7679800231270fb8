-- name: list_runs
-- Newest first, by key: each page begins below the last id of the one before.
SELECT r.id, r.root_id, d.name AS job, r.domain, r.action, r.state, r.continuation_state, r.attempt, r.starts,
    r.max_attempts, r.priority, r.assigned_worker_id, r.not_before, r.created_at, r.started_at, r.finished_at,
    r.cancel_requested_at, r.error_code, r.error_message, r.retry_of_id, r.next_attempt_id, clock_timestamp() AS now
FROM supervisor.job_run r
LEFT JOIN supervisor.job_definition d ON d.id = r.job_definition_id
WHERE ($1::text IS NULL OR r.state = $1::text)
  AND ($2::text IS NULL OR r.job_definition_id = ANY (ARRAY(
       SELECT n.id FROM supervisor.job_definition n WHERE n.name = $2::text)))
  AND r.id < coalesce($3::bigint, 9223372036854775807)
ORDER BY r.id DESC LIMIT $4::integer

-- name: find_job
-- Also a removed one: its runs can still be looked at.
SELECT EXISTS (SELECT FROM supervisor.job_definition d WHERE d.name = $1::text) AS found

-- name: show_run
-- The row under its column names, what it went through, and completions that came too late.
SELECT row_to_json(r) AS run, d.name AS job,
    (SELECT coalesce(json_agg(json_build_object('version', h.version, 'from_state', h.from_state,
            'to_state', h.to_state, 'continuation_state', h.continuation_state, 'attempt', h.attempt, 'at', h.at,
            'worker_id', h.worker_id, 'leader_epoch', h.leader_epoch, 'claim_id', h.claim_id, 'reason', h.reason)
            ORDER BY h.version, h.at), '[]')
     FROM supervisor.job_run_history h WHERE h.run_id = r.id) AS history,
    (SELECT coalesce(json_agg(row_to_json(f) ORDER BY f.at), '[]')
     FROM supervisor.late_finish f WHERE f.run_id = r.id) AS late_finishes, clock_timestamp() AS now
FROM supervisor.job_run r
LEFT JOIN supervisor.job_definition d ON d.id = r.job_definition_id
WHERE r.id = $1::bigint

-- name: read_progress
-- Enough to follow a run and its next attempts to their end.
SELECT r.id, r.root_id, r.state, r.attempt, r.error_code, r.error_message, r.next_attempt_id,
    r.retry_at IS NOT NULL OR EXISTS (SELECT FROM supervisor.retry_request q WHERE q.run_id = r.id) AS goes_on
FROM supervisor.job_run r WHERE r.id = $1::bigint

-- name: request_cancel
-- The leader, or the worker's next beat, does the rest.
SELECT id, state, requested FROM supervisor.request_cancel($1::text, $2::bigint)

-- name: request_retry
-- The leader makes the next attempt.
SELECT id, requested FROM supervisor.request_retry($1::text, $2::bigint)

-- name: read_log
-- A page of a run's log, from a place in it.
SELECT l.seq, l.stream, l.at, l.body FROM supervisor.job_run_log l
WHERE l.run_id = $1::bigint AND l.seq >= $2::integer ORDER BY l.seq LIMIT $3::integer
