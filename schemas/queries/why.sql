-- What could keep a run from running, as facts; which of them does is decided in supervisor/why.py.

-- name: read_why
-- Each run with its job, the leader and the attempts before and after: one row of one moment.
SELECT r.id, r.job_definition_id, r.state, r.attempt, r.starts, r.max_attempts, r.not_before, r.scheduled_for, r.continuation_state,
    r.continuation_reason, r.continuation_check_deadline_at, r.assigned_worker_id, r.assigned_at, r.started_at,
    r.started_at + make_interval(secs => r.timeout_seconds) AS times_out_at, r.finished_at, r.finished_by, r.error_code,
    r.error_message, r.retry_at, r.next_attempt_id, r.retry_of_id, r.domain, r.cancel_requested_at,
    c.actor AS cancel_requested_by, r.assigned_epoch < e.first_epoch AS of_older_timeline,
    EXISTS (SELECT FROM supervisor.retry_request q WHERE q.run_id = r.id) AS retry_requested,
    d.name AS job, d.enabled AS job_enabled, d.removed_at AS job_removed_at, d.concurrency,
    o.at AS job_disabled_at, o.actor AS job_disabled_by, p.paused_at AS domain_paused_at, p.actor AS domain_paused_by,
    e.quarantine_until, e.since AS leader_since, coalesce(l.holder, e.holder) AS last_leader,
    nullif(l.expires_at, '-infinity') AS lease_expires_at,
    CASE WHEN l.expires_at > clock_timestamp() AND e.system_identifier = here.system_identifier
        AND e.timeline = here.timeline THEN l.holder END AS leader,
    (SELECT s.value::text::float8 FROM supervisor.setting s WHERE s.name = 'reassign_after_seconds')
        AS reassign_after_seconds,
    w.heartbeat_at AS worker_heard_at, w.state AS worker_state,
    b.id AS before_id, b.worker_id AS before_worker_id, b.stops_at AS before_stops_at,
    n.state AS next_state, n.not_before AS next_not_before, clock_timestamp() AS now
FROM supervisor.job_run r
CROSS JOIN supervisor.leader_epoch e
CROSS JOIN supervisor.leader_lease l
CROSS JOIN supervisor.server_identity() AS here
LEFT JOIN supervisor.job_definition d ON d.id = r.job_definition_id
LEFT JOIN supervisor.domain_pause p ON p.domain = r.domain
LEFT JOIN supervisor.worker w ON w.worker_id = r.assigned_worker_id
LEFT JOIN LATERAL (
    SELECT a.at, a.actor FROM supervisor.audit a
    WHERE NOT d.enabled AND a.target = 'job:' || d.name AND a.after ->> 'enabled' = 'false'
      AND a.before ->> 'enabled' IS DISTINCT FROM 'false'
    ORDER BY a.id DESC LIMIT 1) o ON true
LEFT JOIN LATERAL (
    SELECT a.actor FROM supervisor.audit a
    WHERE a.at BETWEEN r.cancel_requested_at AND r.cancel_requested_at + interval '1 minute'
      AND a.target = 'run:' || r.id AND a.action = 'run.cancel'
    ORDER BY a.id DESC LIMIT 1) c ON true
LEFT JOIN LATERAL (
    -- a leader believes no silence that it has not watched itself; of a worker without a row it has nothing to watch
    SELECT a.id, a.assigned_worker_id AS worker_id,
        CASE WHEN aw.worker_id IS NULL THEN a.started_at ELSE greatest(aw.heartbeat_at, e.since) END
        + make_interval(secs => greatest(aw.stop_bound_seconds, $2::float8)) AS stops_at
    FROM supervisor.job_run a LEFT JOIN supervisor.worker aw ON aw.worker_id = a.assigned_worker_id
    WHERE a.root_id = r.root_id AND a.id <> r.id AND a.started_at IS NOT NULL AND a.executor_stopped_at IS NULL
    ORDER BY 3 DESC LIMIT 1) b ON true
-- LIMIT keeps it a look-up by id
LEFT JOIN LATERAL (SELECT f.state, f.not_before FROM supervisor.job_run f WHERE f.id = r.next_attempt_id LIMIT 1) n ON true
WHERE r.id = ANY ($1::bigint[])

-- name: list_occupants
-- Who takes the concurrency of these jobs: live runs, and ended ones whose executor may still be at it. A hundred are named.
SELECT d.id AS job_definition_id, o.total, o.runs
FROM supervisor.job_definition d
CROSS JOIN supervisor.leader_epoch e
CROSS JOIN LATERAL (
    SELECT count(*) AS total, coalesce((array_agg(u.id ORDER BY u.id))[:100], '{}') AS runs FROM (
        SELECT a.id FROM supervisor.job_run a
        WHERE a.job_definition_id = d.id AND a.state IN ('ASSIGNED', 'RUNNING')
        UNION ALL
        SELECT a.id FROM supervisor.job_run a
        WHERE a.job_definition_id = d.id AND a.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED')
          AND a.started_at IS NOT NULL AND a.executor_stopped_at IS NULL
          AND clock_timestamp() < coalesce((SELECT greatest(w.heartbeat_at, e.since)
              + make_interval(secs => greatest(w.stop_bound_seconds, $2::float8)) FROM supervisor.worker w
                  WHERE w.worker_id = a.assigned_worker_id), a.started_at + make_interval(secs => $2::float8))) u) o
WHERE d.id = ANY ($1::bigint[]) AND d.concurrency IS NOT NULL

-- name: list_candidates
-- Every replica that has not left: its domains, how long it is silent, and whose runs take its slots.
SELECT w.worker_id, w.state, w.domains, w.slots,
    extract(epoch FROM clock_timestamp() - w.heartbeat_at)::float8 AS silent_seconds,
    (SELECT coalesce(jsonb_object_agg(g.domain, g.runs), '{}') FROM (
        SELECT o.domain, count(*) AS runs FROM supervisor.job_run o
        WHERE o.assigned_worker_id = w.worker_id AND o.state IN ('ASSIGNED', 'RUNNING') GROUP BY o.domain) g) AS held
FROM supervisor.worker w
WHERE w.state <> 'gone'
ORDER BY w.worker_id

-- name: count_ahead
-- Due runs of its domain that are given out before each of these; counting stops at a thousand.
SELECT r.id, line.ahead
FROM supervisor.job_run r
CROSS JOIN LATERAL (
    SELECT count(*) AS ahead FROM (
        SELECT FROM supervisor.job_run o
        WHERE o.domain = r.domain AND o.state IN ('PENDING', 'ORPHANED') AND o.id <> r.id
          AND o.not_before <= clock_timestamp()
          AND (-o.priority, o.not_before, o.id) < (-r.priority, r.not_before, r.id)
        LIMIT 1000) u) line
WHERE r.id = ANY ($1::bigint[])
