-- Listings of the HTTP API. Each page begins behind a key; none reads more than a bounded piece of a table.
-- Where a filter has no index, the newest rows are walked in the order of their key, so many at most ($scan):
-- the page may then be short, and the next one goes on where the walk ended.

-- name: find_recent_runs
-- A walk down the ids: stops when the page is full, or after so many rows.
SELECT r.id
FROM (SELECT n.id, n.state, n.domain, n.job_definition_id, n.assigned_worker_id, n.created_at
      FROM supervisor.job_run n WHERE n.id < $1::bigint AND n.id >= $2::bigint
      ORDER BY n.id DESC LIMIT $3::integer) r
WHERE ($5::text[] IS NULL OR r.state = ANY ($5::text[]))
  AND ($6::text IS NULL OR r.domain = $6::text)
  AND ($7::bigint[] IS NULL OR r.job_definition_id = ANY ($7::bigint[]))
  AND ($8::text IS NULL OR r.assigned_worker_id = $8::text)
  AND ($9::timestamptz IS NULL OR r.created_at >= $9::timestamptz)
  AND ($10::timestamptz IS NULL OR r.created_at < $10::timestamptz)
ORDER BY r.id DESC LIMIT $4::integer

-- name: find_live_runs
-- Out of what has not ended, by the indexes of live states; `found` tells whether all of it was looked at.
WITH live AS MATERIALIZED (
    SELECT n.id, n.domain, n.job_definition_id, n.assigned_worker_id, n.created_at
    FROM supervisor.job_run n
    WHERE n.state = ANY ($5::text[]) AND (n.state IN ('PENDING', 'ORPHANED') OR n.state IN ('ASSIGNED', 'RUNNING'))
    LIMIT $3::integer
)
SELECT (SELECT count(*) FROM live) AS found, ARRAY(
    SELECT r.id FROM live r
    WHERE r.id < $1::bigint AND r.id >= $2::bigint
      AND ($6::text IS NULL OR r.domain = $6::text)
      AND ($7::bigint[] IS NULL OR r.job_definition_id = ANY ($7::bigint[]))
      AND ($8::text IS NULL OR r.assigned_worker_id = $8::text)
      AND ($9::timestamptz IS NULL OR r.created_at >= $9::timestamptz)
      AND ($10::timestamptz IS NULL OR r.created_at < $10::timestamptz)
    ORDER BY r.id DESC LIMIT $4::integer) AS ids

-- name: find_root_runs
-- The attempts of one root are few, and have an index.
SELECT r.id
FROM supervisor.job_run r
WHERE r.root_id = $11::bigint AND r.id < $1::bigint AND r.id >= $2::bigint AND $3::integer > 0
  AND ($5::text[] IS NULL OR r.state = ANY ($5::text[]))
  AND ($6::text IS NULL OR r.domain = $6::text)
  AND ($7::bigint[] IS NULL OR r.job_definition_id = ANY ($7::bigint[]))
  AND ($8::text IS NULL OR r.assigned_worker_id = $8::text)
  AND ($9::timestamptz IS NULL OR r.created_at >= $9::timestamptz)
  AND ($10::timestamptz IS NULL OR r.created_at < $10::timestamptz)
ORDER BY r.id DESC LIMIT $4::integer

-- name: find_walk_end
-- Where a walk over so many runs ends; no row = there are not so many, and it has seen them all.
SELECT w.lowest FROM (
    SELECT min(n.id) AS lowest, count(*) AS walked FROM (
        SELECT m.id FROM supervisor.job_run m WHERE m.id < $1::bigint AND m.id >= $2::bigint
        ORDER BY m.id DESC LIMIT $3::integer) n) w
WHERE w.walked = $3::integer

-- name: find_runs_bounds
-- Between which ids the runs of a time are. Ids and times rise together but for what is made at once: hence the slack.
SELECT
    (SELECT max(n.id) FROM (SELECT r.id FROM supervisor.job_run r
        WHERE r.created_at < $2::timestamptz + interval '10 seconds' ORDER BY r.created_at DESC LIMIT 1000) n) AS highest,
    (SELECT min(n.id) FROM (SELECT r.id FROM supervisor.job_run r
        WHERE r.created_at >= $1::timestamptz - interval '10 seconds' ORDER BY r.created_at LIMIT 1000) n) AS lowest

-- name: find_job_ids
-- Of all definitions that ever had the name.
SELECT coalesce(array_agg(d.id), '{}') AS ids FROM supervisor.job_definition d WHERE d.name = $1::text

-- name: read_runs_listed
-- What a listing shows of these runs, newest first.
SELECT r.id, r.root_id, (SELECT d.name FROM supervisor.job_definition d WHERE d.id = r.job_definition_id) AS job,
    r.domain, r.action, r.state, r.continuation_state, r.attempt, r.starts, r.max_attempts, r.priority,
    r.assigned_worker_id, r.not_before, r.created_at, r.started_at, r.finished_at, r.cancel_requested_at,
    r.error_code, left(r.error_message, 500) AS error_message, r.retry_of_id, r.next_attempt_id
FROM supervisor.job_run r WHERE r.id = ANY ($1::bigint[]) ORDER BY r.id DESC

-- name: list_attempts
-- The rows of a run's root, in their order; the newest of very many.
SELECT n.id, n.attempt, n.state, n.assigned_worker_id, n.leader_epoch, n.created_at, n.assigned_at, n.started_at,
    n.finished_at, n.error_code
FROM (SELECT a.id, a.attempt, a.state, a.assigned_worker_id, a.leader_epoch, a.created_at, a.assigned_at,
        a.started_at, a.finished_at, a.error_code
      FROM supervisor.job_run a
      WHERE a.root_id = (SELECT r.root_id FROM supervisor.job_run r WHERE r.id = $1::bigint)
      ORDER BY a.attempt DESC LIMIT 1000) n
ORDER BY n.attempt

-- name: list_jobs_page
-- By name; a job's own figures come from the indexes of its runs.
SELECT d.id, d.name, d.domain, d.action, d.enabled, d.cron, d.timezone, d.missed, d.event_type, d.schedule_error,
    CASE WHEN d.cron IS NOT NULL THEN nullif(d.next_fire_at, '-infinity') END AS next_fire_at,
    (SELECT r.scheduled_for FROM supervisor.job_run r WHERE r.job_definition_id = d.id AND r.scheduled_for IS NOT NULL
     ORDER BY r.scheduled_for DESC LIMIT 1) AS last_fire_at,
    (SELECT coalesce(sum(s.instants), 0) FROM supervisor.skipped_fire s WHERE s.job_definition_id = d.id)::bigint AS skipped,
    d.priority, d.max_attempts, d.timeout_seconds, d.concurrency, d.concurrency_policy, d.backoff_seconds,
    d.backoff_max_seconds, d.created_at, d.updated_at,
    (SELECT count(*) FROM supervisor.job_run r WHERE r.job_definition_id = d.id
        AND r.state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED')) AS live
FROM (SELECT n.* FROM supervisor.job_definition n
      WHERE n.removed_at IS NULL AND n.name > $1::text
        AND ($3::text IS NULL OR n.domain = $3::text) AND ($4::boolean IS NULL OR n.enabled = $4::boolean)
      ORDER BY n.name LIMIT $2::integer) d
ORDER BY d.name

-- name: list_workers_page
-- By id: those of now, or also those that are gone.
SELECT w.worker_id, w.state, w.domains, w.slots, w.stop_bound_seconds, w.drain_requested_at, w.first_seen_at,
    w.heartbeat_at, greatest(0, extract(epoch FROM clock_timestamp() - w.heartbeat_at))::float8 AS heartbeat_age_seconds,
    c.claims
FROM supervisor.worker w
CROSS JOIN LATERAL (SELECT count(*) AS claims FROM supervisor.job_run r
    WHERE r.assigned_worker_id = w.worker_id AND r.state IN ('ASSIGNED', 'RUNNING')) c
WHERE w.worker_id > $1::text AND ($3::boolean OR c.claims > 0
   OR (w.state <> 'gone' AND w.heartbeat_at > clock_timestamp() - interval '1 hour'))
ORDER BY w.worker_id LIMIT $2::integer

-- name: list_tenures_page
-- Epochs, newest first: each with how it ended, and how long nobody led before it. A lease that ran out left no row;
-- who took over noted its last renewal.
SELECT t.epoch, t.holder, t.at AS acquired_at, t.timeline,
    CASE WHEN n.what = 'RESIGNED' THEN n.at END AS resigned_at,
    CASE WHEN n.what = 'RESIGNED' THEN n.reason END AS reason,
    CASE WHEN n.what = 'RESIGNED' THEN 'RESIGNED'
         WHEN n.what IS NULL AND l.epoch = t.epoch AND l.expires_at > clock_timestamp() THEN 'LEADS'
         ELSE 'EXPIRED' END AS ended,
    CASE WHEN p.what = 'RESIGNED' THEN extract(epoch FROM t.at - p.at)::float8 END AS gap_seconds,
    CASE WHEN t.before_renewed_at IS NOT NULL THEN greatest(0, extract(epoch FROM t.at - t.before_renewed_at))::float8 END
        AS gap_at_most_seconds,
    n.before_renewed_at AS last_renewed_at, n.next_at AS succeeded_at
FROM (SELECT a.id, a.epoch, a.holder, a.at, a.timeline, a.before_renewed_at FROM supervisor.tenure_log a
      WHERE a.what = 'ACQUIRED' AND a.epoch < $1::bigint ORDER BY a.epoch DESC LIMIT $2::integer) t
CROSS JOIN supervisor.leader_lease l
LEFT JOIN LATERAL (
    SELECT f.what, f.at, f.reason, f.before_renewed_at,
        (SELECT s.at FROM supervisor.tenure_log s WHERE s.id >= f.id AND s.what = 'ACQUIRED'
         ORDER BY s.id LIMIT 1) AS next_at
    FROM supervisor.tenure_log f WHERE f.id > t.id ORDER BY f.id LIMIT 1) n ON true
LEFT JOIN LATERAL (
    SELECT b.what, b.at FROM supervisor.tenure_log b WHERE b.id < t.id ORDER BY b.id DESC LIMIT 1) p ON true
ORDER BY t.epoch DESC

-- name: list_events_page
-- Newest first; a type is looked for in a walk.
SELECT e.id, e.type, e.dedupe_key, e.payload, e.created_at, e.processed_at, e.runs
FROM (SELECT n.id, n.type, n.dedupe_key, n.payload, n.created_at, n.processed_at, n.runs
      FROM supervisor.event n WHERE n.id < $1::bigint ORDER BY n.id DESC LIMIT $3::integer) e
WHERE $4::text IS NULL OR e.type = $4::text
ORDER BY e.id DESC LIMIT $2::integer

-- name: find_events_end
-- Where a walk over so many events ends.
SELECT w.lowest FROM (
    SELECT min(n.id) AS lowest, count(*) AS walked FROM (
        SELECT m.id FROM supervisor.event m WHERE m.id < $1::bigint ORDER BY m.id DESC LIMIT $2::integer) n) w
WHERE w.walked = $2::integer

-- name: list_audit_page
-- Newest first; who, what and on what are looked for in a walk.
SELECT a.id, a.at, a.actor, a.action, a.target, a.before, a.after, a.login
FROM (SELECT n.id, n.at, n.actor, n.action, n.target, n.before, n.after, n.login
      FROM supervisor.audit n WHERE n.id < $1::bigint ORDER BY n.id DESC LIMIT $3::integer) a
WHERE ($4::text IS NULL OR a.target = $4::text) AND ($5::text IS NULL OR a.actor = $5::text)
  AND ($6::text IS NULL OR a.action = $6::text)
ORDER BY a.id DESC LIMIT $2::integer

-- name: find_audit_end
-- Where a walk over so many entries of the audit ends.
SELECT w.lowest FROM (
    SELECT min(n.id) AS lowest, count(*) AS walked FROM (
        SELECT m.id FROM supervisor.audit m WHERE m.id < $1::bigint ORDER BY m.id DESC LIMIT $2::integer) n) w
WHERE w.walked = $2::integer

-- name: list_settings_page
-- With the bounds that a value must keep to; none for a switch.
SELECT s.name, s.value, s.least::float8 AS least, s.most::float8 AS most, s.updated_at
FROM supervisor.setting s WHERE s.name > $1::text ORDER BY s.name LIMIT $2::integer

-- name: list_late_finishes
-- Completions that came too late and were refused, newest first.
SELECT f.claim_id, f.at, f.run_id, f.worker_id, f.leader_epoch, f.state, f.result, f.error_code,
    left(f.error_message, 500) AS error_message
FROM supervisor.late_finish f
WHERE f.at <= $1::timestamptz AND (f.at, f.claim_id, f.worker_id) < ($1::timestamptz, $2::uuid, $3::text)
ORDER BY f.at DESC, f.claim_id DESC, f.worker_id DESC LIMIT $4::integer

-- name: list_orphanings
-- What was taken from lost workers before it started, newest first, and what has become of it; found in a walk.
SELECT h.at, h.run_id, h.version, h.attempt, h.worker_id, h.leader_epoch, h.reason,
    (SELECT r.state FROM supervisor.job_run r WHERE r.id = h.run_id) AS state
FROM (SELECT n.at, n.run_id, n.version, n.attempt, n.worker_id, n.leader_epoch, n.reason, n.to_state
      FROM supervisor.job_run_history n
      WHERE n.at <= $1::timestamptz AND (n.at, n.run_id, n.version) < ($1::timestamptz, $2::bigint, $3::integer)
      ORDER BY n.at DESC, n.run_id DESC, n.version DESC LIMIT $5::integer) h
WHERE h.to_state = 'ORPHANED'
ORDER BY h.at DESC, h.run_id DESC, h.version DESC LIMIT $4::integer

-- name: find_history_end
-- Where a walk over so many rows of the history ends.
SELECT w.at, w.run_id, w.version FROM (
    SELECT n.at, n.run_id, n.version, row_number() OVER (ORDER BY n.at DESC, n.run_id DESC, n.version DESC) AS walked
    FROM supervisor.job_run_history n
    WHERE n.at <= $1::timestamptz AND (n.at, n.run_id, n.version) < ($1::timestamptz, $2::bigint, $3::integer)
    ORDER BY n.at DESC, n.run_id DESC, n.version DESC LIMIT $4::integer) w
WHERE w.walked = $4::integer

-- name: read_moves
-- What happened to runs since a moment, in its order; the newest move of each is told.
SELECT h.run_id, h.root_id, h.version, h.to_state, h.continuation_state, h.attempt, h.at, h.worker_id
FROM supervisor.job_run_history h
WHERE h.at > $1::timestamptz AND h.at > clock_timestamp() - interval '1 hour'
ORDER BY h.at, h.run_id, h.version LIMIT $2::integer

-- name: read_standing
-- Who leads, and every replica's state: what is compared from one second to the next.
SELECT clock_timestamp() AS now, l.epoch,
    CASE WHEN l.expires_at > clock_timestamp() THEN l.holder END AS leader,
    (SELECT coalesce(jsonb_object_agg(w.worker_id, CASE WHEN w.state <> 'gone' AND w.drain_requested_at IS NOT NULL
        THEN 'draining' ELSE w.state END), '{}') FROM supervisor.worker w
     WHERE w.state <> 'gone' AND w.heartbeat_at > clock_timestamp() - interval '1 hour') AS workers
FROM supervisor.leader_lease l
