-- What `tenure verify` reads of a database in use. Each statement is one snapshot, and says enough by itself: what
-- it answers is not compared with the answer of another.

-- name: read_terms
-- The term in force and the log of terms, in one row, because a take-over writes both.
SELECT e.epoch, e.first_epoch, e.holder, e.system_identifier, e.timeline,
    l.ids, l.ats, l.epochs, l.holders, l.whats, l.systems, l.timelines, clock_timestamp() AS now
FROM supervisor.leader_epoch e
CROSS JOIN LATERAL (
    SELECT array_agg(t.id ORDER BY t.id) AS ids, array_agg(t.at ORDER BY t.id) AS ats,
        array_agg(t.epoch ORDER BY t.id) AS epochs, array_agg(t.holder ORDER BY t.id) AS holders,
        array_agg(t.what ORDER BY t.id) AS whats, array_agg(t.system_identifier ORDER BY t.id) AS systems,
        array_agg(t.timeline ORDER BY t.id) AS timelines
    FROM supervisor.tenure_log t) l

-- name: list_roots
-- The next roots by id, and which of them moved since a time; a page is as long whether they did or not.
SELECT p.root_id, $3::timestamptz IS NULL OR EXISTS (
    SELECT FROM supervisor.job_run r JOIN supervisor.job_run_history h ON h.run_id = r.id
    WHERE r.root_id = p.root_id AND h.at >= $3::timestamptz) AS wanted
FROM (SELECT DISTINCT r.root_id FROM supervisor.job_run r WHERE r.root_id > $1::bigint
      ORDER BY r.root_id LIMIT $2::integer) p
ORDER BY p.root_id

-- name: read_histories
-- Whole roots: every run with its history and what is known of its worker, in one snapshot.
SELECT r.id, r.root_id, r.state, r.version, r.continuation_state, r.attempt, r.starts, r.max_attempts,
    r.assigned_epoch, r.leader_epoch, r.assigned_worker_id, r.claim_id::text AS claim_id, r.retry_of_id,
    r.next_attempt_id, r.error_code, r.finished_by, r.not_before, r.started_at, r.finished_at, r.executor_stopped_at,
    r.retry_at, r.cancel_requested_at, w.heartbeat_at, w.stop_bound_seconds,
    h.roots, h.versions, h.befores, h.states, h.continuations, h.attempts, h.ats, h.workers, h.epochs, h.claims,
    h.actors, h.reasons
FROM supervisor.job_run r
LEFT JOIN supervisor.worker w ON w.worker_id = r.assigned_worker_id
CROSS JOIN LATERAL (
    SELECT array_agg(x.root_id) AS roots, array_agg(x.version) AS versions, array_agg(x.from_state) AS befores,
        array_agg(x.to_state) AS states, array_agg(x.continuation_state) AS continuations,
        array_agg(x.attempt) AS attempts, array_agg(extract(epoch FROM x.at)::float8) AS ats,
        array_agg(x.worker_id) AS workers, array_agg(x.leader_epoch) AS epochs, array_agg(x.claim_id::text) AS claims,
        array_agg(x.actor) AS actors, array_agg(x.reason) AS reasons
    FROM (SELECT m.* FROM supervisor.job_run_history m WHERE m.run_id = r.id ORDER BY m.version, m.at) x) h
WHERE r.root_id = ANY ($1::bigint[])
ORDER BY r.root_id, r.attempt, r.id

-- name: find_lost_runs
-- Histories whose run is not there; retention removes both at once.
SELECT h.run_id, count(*) AS versions FROM supervisor.job_run_history h
WHERE h.run_id > $1::bigint AND h.run_id <= $2::bigint AND ($3::timestamptz IS NULL OR h.at >= $3::timestamptz)
  AND NOT EXISTS (SELECT FROM supervisor.job_run r WHERE r.id = h.run_id)
GROUP BY h.run_id ORDER BY h.run_id LIMIT 20

-- name: find_root
-- The root of a run.
SELECT r.root_id FROM supervisor.job_run r WHERE r.id = $1::bigint

-- name: count_histories
-- About how much there is to read.
SELECT sum(greatest(c.reltuples, 0))::bigint AS moves FROM pg_catalog.pg_inherits i
JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'supervisor.job_run_history'::regclass

-- name: read_fires
-- Each schedule with what it fired and skipped since everything about it is still there: since it was last changed,
-- and as far back as retention keeps runs and skipped instants, by its present and by an earlier setting.
SELECT d.id, d.name, d.cron, d.timezone, d.missed, d.fired_until, k.since,
    (SELECT coalesce(array_agg(r.scheduled_for), '{}') FROM supervisor.job_run r
     WHERE r.job_definition_id = d.id AND r.scheduled_for > k.since) AS fired,
    s.firsts, s.lasts, s.counts
FROM supervisor.job_definition d
CROSS JOIN LATERAL (
    SELECT greatest(d.updated_at + interval '1 second', $2::timestamptz, max(t.updated_at), max(
        clock_timestamp() - make_interval(secs => 86400 * t.value::text::float8)) + interval '1 minute') AS since
    FROM supervisor.setting t WHERE t.name IN ('run_retention_days', 'skipped_retention_days')) k
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(f.first_instant), '{}') AS firsts, coalesce(array_agg(f.last_instant), '{}') AS lasts,
        coalesce(array_agg(f.instants), '{}') AS counts
    FROM supervisor.skipped_fire f WHERE f.job_definition_id = d.id AND f.last_instant > k.since) s
WHERE d.id > $1::bigint AND d.cron IS NOT NULL AND d.schedule_error IS NULL AND d.fired_until > k.since
ORDER BY d.id LIMIT $3::integer
