-- What the pages show and nothing else reads.

-- name: see_clock
-- Ages on a page are measured by this clock.
SELECT clock_timestamp() AS now

-- name: see_outcomes
-- Attempts that ended in this minute and the 59 before; by index, and of the newest $1 of each kind only, so that it costs the same whatever the history holds.
-- The minutes are whole ones, so that one that is over keeps its figures.
SELECT (extract(epoch FROM date_bin('1 minute', statement_timestamp(), 'epoch')
        - date_bin('1 minute', e.finished_at, 'epoch')) / 60)::integer AS minutes_ago, e.state,
    count(*) AS runs, max(e.waited)::float8 AS longest_wait_seconds
FROM (
    (SELECT r.finished_at, r.state, extract(epoch FROM r.started_at - r.not_before) AS waited
     FROM supervisor.job_run r
     WHERE r.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED') AND r.next_attempt_id IS NULL
       AND r.retry_at IS NULL AND r.finished_at >= date_bin('1 minute', statement_timestamp(), 'epoch') - interval '59 min'
     ORDER BY r.finished_at DESC LIMIT $1::integer)
    UNION ALL
    -- those that another attempt followed are found through it
    SELECT p.finished_at, p.state, extract(epoch FROM p.started_at - p.not_before)
    FROM (SELECT c.retry_of_id FROM supervisor.job_run c
          WHERE c.created_at > statement_timestamp() - interval '1 hour'
          ORDER BY c.created_at DESC LIMIT $1::integer) n
    -- LIMIT keeps it a look-up by id: joined as a set, it reads the whole table
    CROSS JOIN LATERAL (SELECT b.finished_at, b.state, b.started_at, b.not_before
        FROM supervisor.job_run b WHERE b.id = n.retry_of_id LIMIT 1) p
    WHERE n.retry_of_id IS NOT NULL AND p.finished_at >= date_bin('1 minute', statement_timestamp(), 'epoch') - interval '59 min'
    UNION ALL
    -- those whose next attempt is owed
    (SELECT o.finished_at, o.state, extract(epoch FROM o.started_at - o.not_before)
     FROM supervisor.job_run o
     WHERE o.retry_at IS NOT NULL AND o.next_attempt_id IS NULL
       AND o.finished_at >= date_bin('1 minute', statement_timestamp(), 'epoch') - interval '59 min'
     ORDER BY o.retry_at DESC LIMIT $1::integer)
) e
GROUP BY 1, 2

-- name: see_concerns
-- What no other figure tells: the oldest event that nobody has processed, and schedules that cannot be read.
SELECT
    (SELECT min(e.created_at) FROM supervisor.event e WHERE e.processed_at IS NULL) AS oldest_event_at,
    (SELECT coalesce(array_agg(d.name ORDER BY d.name), '{}') FROM supervisor.job_definition d
     WHERE d.schedule_error IS NOT NULL AND d.enabled AND d.removed_at IS NULL) AS broken_schedules,
    (SELECT coalesce(array_agg(p.domain ORDER BY p.domain), '{}') FROM supervisor.domain_pause p) AS paused_domains,
    (SELECT count(*) FROM (SELECT FROM supervisor.late_finish f
        WHERE f.at > statement_timestamp() - interval '1 hour' LIMIT 1000) f) AS late_finishes,
    clock_timestamp() AS now

-- name: see_job_ids
-- Jobs whose name holds a text, also removed ones: their runs can still be looked at.
SELECT d.id FROM supervisor.job_definition d
WHERE strpos(lower(d.name), lower($1::text)) > 0 ORDER BY d.id DESC LIMIT 1000

-- name: see_jobs_named
-- By its name, also removed ones of the same name.
SELECT d.id FROM supervisor.job_definition d WHERE d.name = $1::text ORDER BY d.id DESC LIMIT 1000

-- name: see_worker_ids
-- Replicas whose id begins with one text and holds another: the parts of the short name that is shown. Newest first.
SELECT w.worker_id FROM supervisor.worker w
WHERE starts_with(w.worker_id, $1::text) AND strpos(w.worker_id, $2::text) > 0
ORDER BY w.first_seen_at DESC, w.worker_id LIMIT $3::integer

-- name: see_named_runs
-- By number (a run, or all attempts of a piece of work), or by idempotency key.
SELECT r.id, r.root_id, d.name AS job, r.domain, r.action, r.state, r.continuation_state, r.attempt,
    r.assigned_worker_id, r.not_before, r.created_at, r.started_at, r.finished_at, r.cancel_requested_at,
    r.error_code, r.error_message, r.next_attempt_id, clock_timestamp() AS now
FROM supervisor.job_run r
LEFT JOIN supervisor.job_definition d ON d.id = r.job_definition_id
WHERE r.id = $1::bigint OR r.root_id = $1::bigint OR r.idempotency_key = $2::text
ORDER BY r.id DESC LIMIT $3::integer

-- name: see_newest_runs
-- Newest first below $5, of the $7 newest there: a filter that nothing fits costs no more than that look.
SELECT r.id, r.root_id, d.name AS job, r.domain, r.action, r.state, r.continuation_state, r.attempt,
    r.assigned_worker_id, r.not_before, r.created_at, r.started_at, r.finished_at, r.cancel_requested_at,
    r.error_code, r.error_message, r.next_attempt_id, clock_timestamp() AS now
FROM (
    SELECT n.id, n.root_id, n.job_definition_id, n.domain, n.action, n.state, n.continuation_state, n.attempt,
        n.assigned_worker_id, n.not_before, n.created_at, n.started_at, n.finished_at, n.cancel_requested_at,
        n.error_code, n.error_message, n.next_attempt_id
    FROM supervisor.job_run n
    WHERE n.id < coalesce($5::bigint, 9223372036854775807)
    ORDER BY n.id DESC LIMIT $7::integer
) r
LEFT JOIN supervisor.job_definition d ON d.id = r.job_definition_id
WHERE ($1::text[] IS NULL OR r.state = ANY ($1::text[]))
  AND ($2::text IS NULL OR r.domain = $2::text)
  AND ($3::bigint[] IS NULL OR r.job_definition_id = ANY ($3::bigint[]))
  AND ($4::text[] IS NULL OR r.assigned_worker_id = ANY ($4::text[]))
ORDER BY r.id DESC LIMIT $6::integer

-- name: see_live_runs
-- Exact, over the partial indexes of live states; CONFIRMING is a way to be RUNNING.
SELECT r.id, r.root_id, d.name AS job, r.domain, r.action, r.state, r.continuation_state, r.attempt,
    r.assigned_worker_id, r.not_before, r.created_at, r.started_at, r.finished_at, r.cancel_requested_at,
    r.error_code, r.error_message, r.next_attempt_id, clock_timestamp() AS now
FROM supervisor.job_run r
LEFT JOIN supervisor.job_definition d ON d.id = r.job_definition_id
WHERE (r.state IN ('PENDING', 'ORPHANED') OR r.state IN ('ASSIGNED', 'RUNNING')) AND r.state = ANY ($1::text[])
  AND ($2::text IS NULL OR r.domain = $2::text)
  AND ($3::bigint[] IS NULL OR r.job_definition_id = ANY ($3::bigint[]))
  AND ($4::text[] IS NULL OR r.assigned_worker_id = ANY ($4::text[]))
  AND r.id < coalesce($5::bigint, 9223372036854775807)
  AND (NOT $7::boolean OR r.continuation_state = 'CONFIRMING')
  AND (NOT $8::boolean OR (r.not_before <= clock_timestamp() AND r.state <> 'RUNNING'))
ORDER BY r.id DESC LIMIT $6::integer

-- name: see_reach
-- How far a look went; no row = to the first run there is.
SELECT n.id FROM supervisor.job_run n
WHERE n.id < coalesce($1::bigint, 9223372036854775807)
ORDER BY n.id DESC OFFSET $2::integer - 1 LIMIT 1

-- name: see_attempts
-- The rows of one piece of work, the newest if there are many.
SELECT r.id, r.attempt, r.state, r.continuation_state, r.assigned_worker_id, r.created_at, r.started_at,
    r.finished_at, r.error_code, r.executor_stopped_at
FROM supervisor.job_run r WHERE r.root_id = $1::bigint ORDER BY r.attempt DESC LIMIT $2::integer

-- name: see_steps
-- What these rows went through, in order; the newest if there is much.
SELECT s.run_id, s.version, s.from_state, s.to_state, s.continuation_state, s.attempt, s.at, s.worker_id,
    s.leader_epoch, s.claim_id, s.actor, s.reason
FROM (SELECT h.run_id, h.version, h.from_state, h.to_state, h.continuation_state, h.attempt, h.at, h.worker_id,
          h.leader_epoch, h.claim_id, h.actor, h.reason
      FROM supervisor.job_run_history h WHERE h.run_id = ANY ($1::bigint[])
      ORDER BY h.at DESC, h.run_id DESC, h.version DESC LIMIT $2::integer) s
ORDER BY s.at, s.run_id, s.version

-- name: see_log_tail
-- The end of a log: at most $2 pieces and about $4 bytes, each cut after $3 characters. What is left out is not unpacked.
SELECT t.seq, t.stream, t.at, left(t.body, $3::integer) AS body, length(t.body) AS length
FROM (SELECT n.seq, n.stream, n.at, n.body,
          sum(least(octet_length(n.body), $3::integer)) OVER (ORDER BY n.seq DESC) AS bytes
      FROM (SELECT l.seq, l.stream, l.at, l.body FROM supervisor.job_run_log l
            WHERE l.run_id = $1::bigint ORDER BY l.seq DESC LIMIT $2::integer) n) t
WHERE t.bytes <= $4::integer ORDER BY t.seq DESC

-- name: see_last_runs
-- The last runs of each job, among the newest of all.
SELECT m.job_definition_id, m.id, m.state, m.continuation_state, m.created_at, m.finished_at
FROM (
    SELECT n.job_definition_id, n.id, n.state, n.continuation_state, n.created_at, n.finished_at,
        row_number() OVER (PARTITION BY n.job_definition_id ORDER BY n.id DESC) AS place
    FROM (SELECT r.job_definition_id, r.id, r.state, r.continuation_state, r.created_at, r.finished_at
          FROM supervisor.job_run r ORDER BY r.id DESC LIMIT $1::integer) n
) m
WHERE m.place <= $2::integer
ORDER BY m.job_definition_id, m.id

-- name: see_skipped_fires
-- Instants of a job that passed without a run, and why.
SELECT s.at, s.reason, s.first_instant, s.last_instant, s.instants
FROM supervisor.skipped_fire s WHERE s.job_definition_id = $1::bigint ORDER BY s.id DESC LIMIT $2::integer

-- name: see_late_runs
-- Due for $1 seconds and not started, the longest waiting first; what somebody holds back is not late.
SELECT r.id, r.state, r.continuation_state, d.name AS job, r.not_before
FROM supervisor.job_run r
JOIN supervisor.job_definition d ON d.id = r.job_definition_id
WHERE r.state IN ('PENDING', 'ASSIGNED', 'ORPHANED')
  AND r.not_before <= statement_timestamp() - make_interval(secs => $1::float8) AND d.enabled
  AND NOT EXISTS (SELECT FROM supervisor.domain_pause p WHERE p.domain = r.domain)
ORDER BY r.not_before, r.id LIMIT $2::integer

-- name: see_lost_attempts
-- Of workers that were not heard in time, within a day, newest first; each with the attempt that followed.
SELECT r.id, r.state, d.name AS job, r.assigned_worker_id AS worker_id, r.finished_at, r.retry_at, r.next_attempt_id,
    n.state AS next_state, n.continuation_state AS next_continuation_state
FROM (SELECT l.id, l.state, l.job_definition_id, l.assigned_worker_id, l.finished_at, l.retry_at, l.next_attempt_id
      FROM supervisor.job_run l
      WHERE l.error_code IN ('CONTINUATION_EXPIRED', 'CONTINUATION_LOST')
        AND l.finished_at > statement_timestamp() - interval '1 day'
      ORDER BY l.finished_at DESC LIMIT $1::integer) r
LEFT JOIN supervisor.job_definition d ON d.id = r.job_definition_id
-- LIMIT keeps it a look-up by id
LEFT JOIN LATERAL (SELECT f.state, f.continuation_state FROM supervisor.job_run f
    WHERE f.id = r.next_attempt_id LIMIT 1) n ON true
ORDER BY r.finished_at DESC

-- name: see_late_finishes
-- Completions that were refused, newest first, by time and claim.
SELECT f.claim_id, f.at, f.run_id, f.worker_id, f.leader_epoch, f.state, f.error_code, f.error_message,
    r.state AS run_state, d.name AS job
FROM supervisor.late_finish f
LEFT JOIN supervisor.job_run r ON r.id = f.run_id
LEFT JOIN supervisor.job_definition d ON d.id = r.job_definition_id
WHERE (f.at, f.claim_id) < (coalesce($1::timestamptz, 'infinity'), coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
ORDER BY f.at DESC, f.claim_id DESC LIMIT $3::integer

-- name: see_held_runs
-- What each replica holds.
SELECT r.assigned_worker_id AS worker_id, r.id, r.state, r.continuation_state, d.name AS job, r.started_at, r.assigned_at
FROM supervisor.job_run r
LEFT JOIN supervisor.job_definition d ON d.id = r.job_definition_id
WHERE r.state IN ('ASSIGNED', 'RUNNING') ORDER BY r.assigned_worker_id, r.id LIMIT $1::integer

-- name: see_settings
-- What all replicas share, between which bounds, and what it was at first.
SELECT s.name, s.value, s.least, s.most, s.about, s.unit, s.initial, s.updated_at FROM supervisor.setting s ORDER BY s.name

-- name: see_live_counts
-- How many runs of each domain stand where.
SELECT r.domain, r.state, count(*) AS runs FROM supervisor.job_run r
WHERE (r.state IN ('PENDING', 'ORPHANED') OR r.state IN ('ASSIGNED', 'RUNNING')) GROUP BY r.domain, r.state
