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

-- name: read_why
-- Everything that could keep this run from running, as facts; which of them does is decided in supervisor/why.py.
SELECT r.id, r.state, r.attempt, r.starts, r.max_attempts, r.not_before, r.cancel_requested_at, r.continuation_state,
    r.continuation_reason, r.continuation_check_deadline_at, r.assigned_worker_id, r.assigned_at, r.started_at,
    r.finished_at, r.error_code, r.error_message, r.retry_at, r.next_attempt_id, r.retry_of_id, r.domain,
    EXISTS (SELECT FROM supervisor.retry_request q WHERE q.run_id = r.id) AS retry_requested,
    d.name AS job, d.enabled AS job_enabled, d.concurrency,
    (SELECT p.paused_at FROM supervisor.domain_pause p WHERE p.domain = r.domain) AS domain_paused_at,
    e.quarantine_until, l.holder AS leader, nullif(l.expires_at, '-infinity') AS lease_expires_at,
    (SELECT s.value::text::float8 FROM supervisor.setting s WHERE s.name = 'reassign_after_seconds')
        AS reassign_after_seconds,
    extract(epoch FROM clock_timestamp() - w.heartbeat_at)::float8 AS worker_silent_seconds, w.state AS worker_state,
    p.id AS before_id, p.worker_id AS before_worker_id, p.stops_at AS before_stops_at, clock_timestamp() AS now
FROM supervisor.job_run r
CROSS JOIN supervisor.leader_epoch e
CROSS JOIN supervisor.leader_lease l
LEFT JOIN supervisor.job_definition d ON d.id = r.job_definition_id
LEFT JOIN supervisor.worker w ON w.worker_id = r.assigned_worker_id
LEFT JOIN LATERAL (
    SELECT a.id, a.assigned_worker_id AS worker_id, coalesce(aw.heartbeat_at, a.started_at)
        + make_interval(secs => greatest(aw.stop_bound_seconds, $2::float8)) AS stops_at
    FROM supervisor.job_run a LEFT JOIN supervisor.worker aw ON aw.worker_id = a.assigned_worker_id
    WHERE a.root_id = r.root_id AND a.id <> r.id AND a.started_at IS NOT NULL AND a.executor_stopped_at IS NULL
    ORDER BY 3 DESC LIMIT 1) p ON true
WHERE r.id = $1::bigint

-- name: list_occupants
-- The runs that take the concurrency of this run's job: live ones, and ended ones whose executor may still be at it.
SELECT o.id, o.state
FROM supervisor.job_run r
CROSS JOIN LATERAL (
    SELECT a.id, a.state FROM supervisor.job_run a
    WHERE a.job_definition_id = r.job_definition_id AND a.state IN ('ASSIGNED', 'RUNNING')
    UNION ALL
    SELECT a.id, a.state FROM supervisor.job_run a
    WHERE a.job_definition_id = r.job_definition_id AND a.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED')
      AND a.started_at IS NOT NULL AND a.executor_stopped_at IS NULL
      AND clock_timestamp() < coalesce((SELECT w.heartbeat_at + make_interval(secs => greatest(w.stop_bound_seconds,
          $2::float8)) FROM supervisor.worker w WHERE w.worker_id = a.assigned_worker_id), a.started_at
          + make_interval(secs => $2::float8))) o
WHERE r.id = $1::bigint AND o.id <> r.id
ORDER BY o.id LIMIT 100

-- name: list_candidates
-- The replicas that work for this run's domain.
SELECT w.worker_id, w.state, w.slots, extract(epoch FROM clock_timestamp() - w.heartbeat_at)::float8 AS silent_seconds,
    (SELECT count(*) FROM supervisor.job_run o
     WHERE o.assigned_worker_id = w.worker_id AND o.state IN ('ASSIGNED', 'RUNNING')) AS held
FROM supervisor.job_run r
JOIN supervisor.worker w ON r.domain = ANY (w.domains) AND w.state <> 'gone'
WHERE r.id = $1::bigint
ORDER BY w.worker_id

-- name: count_ahead
-- Due runs of the domain that are given out before this one; counting stops at a thousand.
SELECT count(*) AS ahead FROM (
    SELECT FROM supervisor.job_run r
    JOIN supervisor.job_run o ON o.domain = r.domain AND o.state IN ('PENDING', 'ORPHANED') AND o.id <> r.id
    WHERE r.id = $1::bigint AND o.not_before <= clock_timestamp()
      AND (-o.priority, o.not_before, o.id) < (-r.priority, r.not_before, r.id)
    LIMIT 1000) line

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
