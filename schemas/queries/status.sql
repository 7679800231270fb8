-- name: ping_database
-- Is the database there, and can it be written to?
SELECT NOT pg_is_in_recovery() AS writable

-- name: read_leader
-- No row = nobody leads: the lease is over, or it was taken on a server that this one is not (any more).
SELECT l.holder AS worker_id, l.epoch, e.since,
    extract(epoch FROM l.expires_at - clock_timestamp())::float8 AS lease_remaining_seconds
FROM supervisor.leader_lease l
JOIN supervisor.leader_epoch e ON e.epoch = l.epoch
CROSS JOIN supervisor.server_identity() AS here
WHERE l.expires_at > clock_timestamp() AND l.holder IS NOT NULL
  AND e.system_identifier = here.system_identifier AND e.timeline = here.timeline

-- name: list_replicas
-- Replicas of now: one that was lost stays in sight for an hour, or as long as a run names it.
WITH claims AS MATERIALIZED (
    SELECT r.assigned_worker_id AS worker_id, count(*) AS claims
    FROM supervisor.job_run r WHERE r.state IN ('ASSIGNED', 'RUNNING') GROUP BY 1
)
SELECT w.worker_id, w.state, w.domains, w.slots, w.stop_bound_seconds, w.drain_requested_at, w.first_seen_at,
    extract(epoch FROM clock_timestamp() - w.heartbeat_at)::float8 AS heartbeat_age_seconds,
    coalesce(c.claims, 0) AS claims
FROM supervisor.worker w
LEFT JOIN claims c ON c.worker_id = w.worker_id
WHERE $1::boolean OR c.claims IS NOT NULL
   OR (w.state <> 'gone' AND w.heartbeat_at > clock_timestamp() - interval '1 hour')
ORDER BY w.first_seen_at, w.worker_id

-- name: count_live_runs
-- Exact, over the partial index of live states; what a disabled job holds back is not late.
SELECT r.domain, r.state, count(*) AS runs,
    extract(epoch FROM clock_timestamp() - min(r.not_before) FILTER (
        WHERE r.state <> 'RUNNING' AND d.enabled AND r.not_before <= clock_timestamp()))::float8 AS lag_seconds
FROM supervisor.job_run r
JOIN supervisor.job_definition d ON d.id = r.job_definition_id
WHERE (r.state IN ('PENDING', 'ORPHANED') OR r.state IN ('ASSIGNED', 'RUNNING'))
GROUP BY r.domain, r.state

-- name: count_ended_runs
-- Of the newest runs created within a day, so that the count costs the same whatever the history holds.
SELECT r.domain, r.state, count(*) AS runs
FROM (
    SELECT n.domain, n.state FROM supervisor.job_run n
    WHERE n.created_at > statement_timestamp() - interval '24 hours' -- stable, so that the index can serve it
    ORDER BY n.created_at DESC LIMIT $1::integer
) r
WHERE r.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED')
GROUP BY r.domain, r.state

-- name: list_domains
-- Domains that somebody works for, or has jobs in.
SELECT unnest(w.domains) AS domain FROM supervisor.worker w WHERE w.state <> 'gone'
UNION SELECT d.domain FROM supervisor.job_definition d WHERE d.removed_at IS NULL
ORDER BY domain

-- name: list_confirming
-- The next to expire first; `total` counts those beyond the limit too.
SELECT r.id, r.assigned_worker_id AS worker_id, r.continuation_check_deadline_at AS deadline_at,
    count(*) OVER () AS total
FROM supervisor.job_run r
WHERE r.continuation_state = 'CONFIRMING'
ORDER BY r.continuation_check_deadline_at, r.id LIMIT $1::integer

-- name: list_orphaned
-- Taken from a lost worker and not given out again; since = the row of the history that says so.
SELECT r.id, h.at AS since
FROM (
    SELECT o.id, o.version FROM supervisor.job_run o WHERE o.state = 'ORPHANED' ORDER BY o.id LIMIT $1::integer
) r
LEFT JOIN LATERAL (
    SELECT max(v.at) AS at FROM supervisor.job_run_history v WHERE v.run_id = r.id AND v.version = r.version
) h ON true
ORDER BY r.id

-- name: show_leader
-- The term and its lease, also when nobody leads; a lease of a server that this one is not (any more) leads nobody.
SELECT e.epoch, e.first_epoch, e.system_identifier, e.timeline, e.holder AS last_holder, e.since, e.quarantine_until,
    l.holder AS worker_id, l.renewed_at, nullif(l.expires_at, '-infinity') AS expires_at,
    l.resign_requested_epoch IS NOT DISTINCT FROM l.epoch AS resigning,
    extract(epoch FROM nullif(l.expires_at, '-infinity') - clock_timestamp())::float8 AS lease_remaining_seconds,
    l.expires_at > clock_timestamp() AND l.holder IS NOT NULL
        AND (e.system_identifier, e.timeline) IS NOT DISTINCT FROM (here.system_identifier, here.timeline) AS live,
    clock_timestamp() AS now
FROM supervisor.leader_epoch e CROSS JOIN supervisor.leader_lease l CROSS JOIN supervisor.server_identity() AS here

-- name: list_tenures
-- Who led when, newest first.
SELECT t.id, t.at, t.epoch, t.holder, t.what, t.reason, t.system_identifier, t.timeline, t.before_renewed_at,
    clock_timestamp() AS now
FROM supervisor.tenure_log t ORDER BY t.id DESC LIMIT $1::integer

-- name: request_resign
-- The leader reads it with its next renewal.
SELECT epoch, holder AS worker_id FROM supervisor.request_resign($1::text)

-- name: request_drain
-- The worker reads it with its next beat.
SELECT worker_id, state, requested FROM supervisor.request_drain($1::text, $2::text)
