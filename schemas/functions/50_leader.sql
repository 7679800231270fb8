-- The leader's moves. Each begins with the fence, locks in one order (epoch row, worker rows, definitions, runs, each
-- by id) and compares what the leader decided on: the version of a run, and the beat_seq of a worker it watched stand still.
-- p_silent_* name workers that this leader itself watched without a beat for as long as the call requires.

-- PENDING or ORPHANED -> ASSIGNED for a batch. Rows that do not qualify (any more) are left alone.
CREATE OR REPLACE FUNCTION supervisor.assign(
    p_epoch bigint, p_ids bigint[], p_versions integer[], p_workers text[], p_silent_workers text[],
    p_silent_seqs bigint[], p_stop_bound_seconds double precision)
RETURNS TABLE (id bigint, worker_id text, attempt integer, queued_seconds double precision)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    counted bigint[];
    target  text;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    -- after a failover nothing is given out until what the old timeline started has stopped by itself
    IF EXISTS (SELECT FROM supervisor.leader_epoch e WHERE e.quarantine_until > clock_timestamp()) THEN
        RETURN;
    END IF;
    PERFORM FROM supervisor.worker w WHERE w.worker_id = ANY (p_workers || p_silent_workers)
        ORDER BY w.worker_id FOR SHARE;
    -- two calls of one leader (the first unanswered, the second its repetition) must not share one free place
    -- (and an application that has just enqueued one of a bounded job holds up that job only, until it commits)
    SELECT coalesce(array_agg(x.id), '{}') INTO counted FROM (
        SELECT d.id FROM supervisor.job_definition d WHERE d.concurrency IS NOT NULL
            AND d.id IN (SELECT r.job_definition_id FROM supervisor.job_run r WHERE r.id = ANY (p_ids))
        ORDER BY d.id FOR NO KEY UPDATE SKIP LOCKED) x;
    PERFORM FROM supervisor.job_run r WHERE r.id = ANY (p_ids) ORDER BY r.id FOR UPDATE;
    PERFORM supervisor.acting('leader', p_epoch, 'ASSIGNED');
    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT r.id, m.worker_id, r.job_definition_id, d.concurrency,
            row_number() OVER (PARTITION BY r.job_definition_id ORDER BY m.place) AS place
        FROM unnest(p_ids, p_versions, p_workers) WITH ORDINALITY AS m(id, version, worker_id, place)
        CROSS JOIN LATERAL (SELECT o.* FROM supervisor.job_run o WHERE o.id = m.id OFFSET 0) r
        JOIN supervisor.worker w ON w.worker_id = m.worker_id
        JOIN supervisor.job_definition d ON d.id = r.job_definition_id
        WHERE r.version = m.version AND r.state IN ('PENDING', 'ORPHANED') AND r.cancel_requested_at IS NULL
          AND r.not_before <= clock_timestamp() AND d.enabled
          AND (d.concurrency IS NULL OR d.id = ANY (counted))
          AND NOT EXISTS (SELECT FROM supervisor.domain_pause p WHERE p.domain = r.domain)
          AND w.state = 'active' AND r.domain = ANY (w.domains)
          AND (r.retry_of_id IS NULL
               OR supervisor.root_quiesced(r.root_id, p_silent_workers, p_silent_seqs, p_stop_bound_seconds))
    ), bounded AS MATERIALIZED (
        SELECT DISTINCT x.job_definition_id FROM wanted x WHERE x.concurrency IS NOT NULL
    ), occupied AS MATERIALIZED (
        SELECT b.job_definition_id, c.live + c.lingering AS taken
        FROM bounded b
        -- one by one, so that nothing is counted where nothing is bounded
        CROSS JOIN LATERAL (SELECT
            (SELECT count(*) FROM supervisor.job_run o
             WHERE o.job_definition_id = b.job_definition_id AND o.state IN ('ASSIGNED', 'RUNNING')) AS live,
            (SELECT count(*) FROM supervisor.job_run o
             WHERE o.job_definition_id = b.job_definition_id
               AND o.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED')
               AND o.started_at IS NOT NULL AND o.executor_stopped_at IS NULL
               AND NOT supervisor.quiesced(o.id, p_silent_workers, p_silent_seqs, p_stop_bound_seconds)
            ) AS lingering) c
    )
    UPDATE supervisor.job_run r SET state = 'ASSIGNED', version = r.version + 1,
        attempt = r.attempt + (r.state = 'ORPHANED')::integer, assigned_epoch = p_epoch,
        assigned_worker_id = x.worker_id, claim_id = gen_random_uuid(), assigned_at = clock_timestamp()
    FROM wanted x
    LEFT JOIN occupied o ON o.job_definition_id = x.job_definition_id
    WHERE r.id = x.id AND (x.concurrency IS NULL OR o.taken + x.place <= x.concurrency)
    RETURNING r.id, r.assigned_worker_id, r.attempt,
        CASE WHEN isfinite(r.not_before) THEN extract(epoch FROM clock_timestamp() - r.not_before) ELSE 0
        END::double precision;

    FOREACH target IN ARRAY ARRAY(SELECT DISTINCT unnest(p_workers)) LOOP
        PERFORM pg_notify('tenure', 'assigned:' || target);
    END LOOP;
END $$;

-- ASSIGNED and not started: too old AND its worker gone or silent; or assigned on an older timeline.
CREATE OR REPLACE FUNCTION supervisor.orphan(
    p_epoch bigint, p_ids bigint[], p_versions integer[], p_silent_workers text[], p_silent_seqs bigint[],
    p_confirm_after_seconds double precision)
RETURNS TABLE (id bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM supervisor.fence(p_epoch);
    PERFORM FROM supervisor.worker w
        WHERE w.worker_id IN (SELECT r.assigned_worker_id FROM supervisor.job_run r WHERE r.id = ANY (p_ids))
        ORDER BY w.worker_id FOR SHARE;
    PERFORM FROM supervisor.job_run r WHERE r.id = ANY (p_ids) ORDER BY r.id FOR UPDATE;
    PERFORM supervisor.acting('leader', p_epoch, 'WORKER_SILENT');
    RETURN QUERY
    WITH lost AS MATERIALIZED (
        SELECT r.id
        FROM unnest(p_ids, p_versions) AS m(id, version)
        JOIN supervisor.job_run r ON r.id = m.id AND r.version = m.version AND r.state = 'ASSIGNED'
        CROSS JOIN supervisor.leader_epoch e
        CROSS JOIN supervisor.setting s
        LEFT JOIN supervisor.worker w ON w.worker_id = r.assigned_worker_id
        WHERE s.name = 'reassign_after_seconds' AND (
            (r.assigned_epoch < e.first_epoch AND coalesce(e.quarantine_until <= clock_timestamp(), true))
            OR (r.assigned_at + make_interval(secs => s.value::text::double precision) <= clock_timestamp()
                AND coalesce(w.state = 'gone' OR (
                    supervisor.heard_at(w.heartbeat_at) + make_interval(secs => p_confirm_after_seconds) <= clock_timestamp()
                    AND EXISTS (SELECT FROM unnest(p_silent_workers, p_silent_seqs) AS q(worker_id, beat_seq)
                                WHERE q.worker_id = w.worker_id AND q.beat_seq = w.beat_seq)), true)))
    )
    UPDATE supervisor.job_run r SET state = 'ORPHANED', version = r.version + 1, claim_id = NULL,
        assigned_worker_id = NULL, fruitless_assignments = r.fruitless_assignments + 1
    FROM lost WHERE r.id = lost.id
    RETURNING r.id;
END $$;

-- Silent workers: their RUNNING rows are asked about, not taken away.
CREATE OR REPLACE FUNCTION supervisor.confirm(
    p_epoch bigint, p_silent_workers text[], p_silent_seqs bigint[], p_confirm_after_seconds double precision,
    p_stop_bound_seconds double precision, p_heartbeat_seconds double precision)
RETURNS TABLE (id bigint, worker_id text, deadline_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    touch bigint[];
BEGIN
    PERFORM supervisor.fence(p_epoch);
    PERFORM FROM supervisor.worker w WHERE w.worker_id = ANY (p_silent_workers) ORDER BY w.worker_id FOR SHARE;
    SELECT array_agg(r.id) INTO touch
    FROM unnest(p_silent_workers, p_silent_seqs) AS q(worker_id, beat_seq)
    LEFT JOIN supervisor.worker w ON w.worker_id = q.worker_id
    JOIN supervisor.job_run r ON r.assigned_worker_id = q.worker_id AND r.state = 'RUNNING'
        AND r.continuation_state = 'NONE'
    WHERE coalesce(supervisor.heard_at(w.heartbeat_at), r.started_at)
          + make_interval(secs => p_confirm_after_seconds) <= clock_timestamp()
      AND (w.worker_id IS NULL OR w.beat_seq = q.beat_seq);
    PERFORM FROM supervisor.job_run r WHERE r.id = ANY (touch) ORDER BY r.id FOR UPDATE;
    PERFORM supervisor.acting('leader', p_epoch, 'SILENT');
    RETURN QUERY
    WITH quiet AS MATERIALIZED (
        -- a worker without a row counts as silent since the start
        SELECT r.id, least(coalesce(w.heartbeat_at, r.started_at), clock_timestamp())
            + make_interval(secs => greatest(w.stop_bound_seconds, p_stop_bound_seconds)) AS stopped_at
        FROM supervisor.job_run r LEFT JOIN supervisor.worker w ON w.worker_id = r.assigned_worker_id
        WHERE r.id = ANY (touch) AND r.state = 'RUNNING' AND r.continuation_state = 'NONE'
    )
    UPDATE supervisor.job_run r SET continuation_state = 'CONFIRMING', continuation_reason = 'SILENT',
        version = r.version + 1,
        continuation_check_deadline_at = greatest(quiet.stopped_at,
            clock_timestamp() + make_interval(secs => 2 * p_heartbeat_seconds))
    FROM quiet WHERE r.id = quiet.id
    RETURNING r.id, r.assigned_worker_id, r.continuation_check_deadline_at;
END $$;

-- Past the deadline by the database's clock, and watched by this leader for D: over. A beat_seq of NULL means that
-- the leader watched the row's version instead.
CREATE OR REPLACE FUNCTION supervisor.expire(
    p_epoch bigint, p_ids bigint[], p_versions integer[], p_beat_seqs bigint[])
RETURNS TABLE (id bigint, state text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM supervisor.fence(p_epoch);
    PERFORM FROM supervisor.worker w
        WHERE w.worker_id IN (SELECT r.assigned_worker_id FROM supervisor.job_run r WHERE r.id = ANY (p_ids))
        ORDER BY w.worker_id FOR SHARE;
    PERFORM FROM supervisor.job_run r WHERE r.id = ANY (p_ids) ORDER BY r.id FOR UPDATE;
    PERFORM supervisor.acting('leader', p_epoch, NULL);
    RETURN QUERY
    WITH over AS MATERIALIZED (
        SELECT r.id FROM unnest(p_ids, p_versions, p_beat_seqs) AS m(id, version, beat_seq)
        JOIN supervisor.job_run r ON r.id = m.id AND r.version = m.version
        LEFT JOIN supervisor.worker w ON w.worker_id = r.assigned_worker_id
        WHERE r.state = 'RUNNING' AND r.continuation_state = 'CONFIRMING'
          AND r.continuation_check_deadline_at <= clock_timestamp()
          AND (m.beat_seq IS NULL OR w.worker_id IS NULL OR w.beat_seq = m.beat_seq)
    )
    UPDATE supervisor.job_run r SET
        state = CASE WHEN r.cancel_requested_at IS NULL THEN 'TIMED_OUT' ELSE 'CANCELED' END,
        version = r.version + 1, continuation_state = 'NONE', continuation_check_deadline_at = NULL,
        finished_at = clock_timestamp(), finished_by = 'leader', error_code = 'CONTINUATION_EXPIRED',
        error_message = 'the worker was not heard before the deadline',
        retry_at = supervisor.retry_due('CONTINUATION_EXPIRED', r.starts, r.max_attempts, r.cancel_requested_at,
                                        NULL, r.backoff_seconds, r.backoff_max_seconds)
    FROM over WHERE r.id = over.id
    RETURNING r.id, r.state;
END $$;

-- Over its own time and D more, without the worker having ended it. The next attempt still waits for the quiesce.
CREATE OR REPLACE FUNCTION supervisor.time_out(
    p_epoch bigint, p_ids bigint[], p_versions integer[], p_stop_bound_seconds double precision)
RETURNS TABLE (id bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM supervisor.fence(p_epoch);
    PERFORM FROM supervisor.job_run r WHERE r.id = ANY (p_ids) ORDER BY r.id FOR UPDATE;
    PERFORM supervisor.acting('leader', p_epoch, 'TIMEOUT');
    RETURN QUERY
    UPDATE supervisor.job_run r SET state = 'TIMED_OUT', version = r.version + 1, continuation_state = 'NONE',
        continuation_check_deadline_at = NULL, finished_at = clock_timestamp(), finished_by = 'leader',
        error_code = 'TIMEOUT', error_message = 'over its time, and not ended by its worker',
        retry_at = supervisor.retry_due('TIMEOUT', r.starts, r.max_attempts, r.cancel_requested_at, NULL,
                                        r.backoff_seconds, r.backoff_max_seconds)
    FROM unnest(p_ids, p_versions) AS m(id, version)
    WHERE r.id = m.id AND r.version = m.version AND r.state = 'RUNNING' AND r.continuation_state = 'NONE'
      AND r.cancel_requested_at IS NULL
      AND r.started_at + make_interval(secs => r.timeout_seconds + p_stop_bound_seconds) <= clock_timestamp()
    RETURNING r.id;
END $$;

-- Cancel what was asked for. A queued run goes by two legal moves, both in the history; a running one only D after
-- the request, when its worker has not ended it.
CREATE OR REPLACE FUNCTION supervisor.cancel(
    p_epoch bigint, p_leader text, p_ids bigint[], p_versions integer[], p_stop_bound_seconds double precision)
RETURNS TABLE (id bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    queued bigint[];
BEGIN
    PERFORM supervisor.fence(p_epoch);
    PERFORM FROM supervisor.job_run r WHERE r.id = ANY (p_ids) ORDER BY r.id FOR UPDATE;
    SELECT array_agg(r.id) INTO queued FROM unnest(p_ids, p_versions) AS m(id, version)
        JOIN supervisor.job_run r ON r.id = m.id AND r.version = m.version
        WHERE r.state IN ('PENDING', 'ORPHANED') AND r.cancel_requested_at IS NOT NULL;
    RETURN QUERY SELECT * FROM supervisor.end_queued(p_epoch, p_leader, queued, 'CANCEL_REQUESTED', NULL, NULL);
    PERFORM supervisor.acting('leader', p_epoch, 'CANCEL_REQUESTED');
    RETURN QUERY
    UPDATE supervisor.job_run r SET state = 'CANCELED', version = r.version + 1, continuation_state = 'NONE',
        continuation_check_deadline_at = NULL, finished_at = clock_timestamp(), finished_by = 'leader'
    FROM unnest(p_ids, p_versions) AS m(id, version)
    WHERE r.id = m.id AND r.version = m.version AND r.cancel_requested_at IS NOT NULL
      AND (r.state = 'ASSIGNED' OR (r.state = 'RUNNING'
           AND r.cancel_requested_at + make_interval(secs => p_stop_bound_seconds) <= clock_timestamp()))
    RETURNING r.id;
END $$;

-- ORPHANED too often without ever being started: somebody has to look at it.
CREATE OR REPLACE FUNCTION supervisor.exhaust(p_epoch bigint, p_leader text, p_ids bigint[], p_versions integer[])
RETURNS TABLE (id bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    queued bigint[];
BEGIN
    PERFORM supervisor.fence(p_epoch);
    PERFORM FROM supervisor.job_run r WHERE r.id = ANY (p_ids) ORDER BY r.id FOR UPDATE;
    SELECT array_agg(r.id) INTO queued FROM unnest(p_ids, p_versions) AS m(id, version)
        JOIN supervisor.job_run r ON r.id = m.id AND r.version = m.version
        CROSS JOIN supervisor.setting s
        WHERE r.state = 'ORPHANED' AND s.name = 'max_assignments'
          AND r.fruitless_assignments >= s.value::text::double precision;
    RETURN QUERY SELECT * FROM supervisor.end_queued(p_epoch, p_leader, queued, 'ASSIGNMENTS_EXHAUSTED',
        'ASSIGNMENTS_EXHAUSTED', 'assigned again and again, and never started');
END $$;

-- Two statements on purpose: two updates of one row in one statement would lose the second.
CREATE OR REPLACE FUNCTION supervisor.end_queued(
    p_epoch bigint, p_leader text, p_ids bigint[], p_reason text, p_error_code text, p_error_message text)
RETURNS TABLE (id bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    IF p_ids IS NULL THEN
        RETURN;
    END IF;
    PERFORM supervisor.acting('leader', p_epoch, p_reason);
    UPDATE supervisor.job_run r SET state = 'ASSIGNED', version = r.version + 1,
        attempt = r.attempt + (r.state = 'ORPHANED')::integer, assigned_epoch = p_epoch,
        assigned_worker_id = p_leader, claim_id = gen_random_uuid(), assigned_at = clock_timestamp()
    WHERE r.id = ANY (p_ids);
    RETURN QUERY
    UPDATE supervisor.job_run r SET state = 'CANCELED', version = r.version + 1, finished_at = clock_timestamp(),
        finished_by = 'leader', error_code = p_error_code, error_message = p_error_message
    WHERE r.id = ANY (p_ids)
    RETURNING r.id;
END $$;

-- The next attempts that are owed, and those an operator asked for: a new row each, made once whoever repeats it.
CREATE OR REPLACE FUNCTION supervisor.next_attempts(p_epoch bigint, p_limit integer)
RETURNS TABLE (id bigint, retry_of_id bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    asked bigint[];
    owed  bigint[];
BEGIN
    PERFORM supervisor.fence(p_epoch);
    SELECT array_agg(q.run_id) INTO asked
        FROM (SELECT q.run_id FROM supervisor.retry_request q ORDER BY q.run_id LIMIT p_limit) q;
    SELECT array_agg(o.id) INTO owed
        FROM (SELECT r.id FROM supervisor.job_run r WHERE r.retry_at IS NOT NULL AND r.next_attempt_id IS NULL
              ORDER BY r.retry_at LIMIT p_limit) o;
    IF asked IS NULL AND owed IS NULL THEN
        RETURN;
    END IF;
    PERFORM FROM supervisor.job_run r WHERE r.id = ANY (asked || owed) ORDER BY r.id FOR UPDATE;
    PERFORM supervisor.acting('leader', p_epoch, 'NEXT_ATTEMPT');
    RETURN QUERY
    WITH made AS (
        INSERT INTO supervisor.job_run AS n (id, root_id, job_definition_id, domain, action, payload, priority, attempt,
            starts, max_attempts, timeout_seconds, backoff_seconds, backoff_max_seconds, idempotency_key, not_before,
            retry_of_id, enqueued_by)
        SELECT nextval('supervisor.job_run_id'), r.root_id, r.job_definition_id, r.domain, r.action, r.payload,
            r.priority, r.attempt + 1, c.starts,
            CASE WHEN r.id = ANY (asked) THEN greatest(r.max_attempts, c.starts + 1) ELSE r.max_attempts END,
            r.timeout_seconds, r.backoff_seconds, r.backoff_max_seconds, format('retry:%s:%s', r.id, r.attempt + 1),
            CASE WHEN r.id = ANY (asked) THEN clock_timestamp() ELSE r.retry_at END, r.id, r.enqueued_by
        FROM supervisor.job_run r
        CROSS JOIN LATERAL (SELECT greatest(0, r.starts
            - coalesce(r.error_code IN ('DRAINED', 'DROPPED'), false)::integer) AS starts) c
        WHERE r.id = ANY (asked || owed) AND r.next_attempt_id IS NULL
          AND r.state IN ('FAILED', 'TIMED_OUT', 'CANCELED')
          AND (r.retry_at IS NOT NULL OR r.id = ANY (asked))
        RETURNING n.id, n.retry_of_id)
    UPDATE supervisor.job_run r SET next_attempt_id = made.id FROM made WHERE r.id = made.retry_of_id
    RETURNING r.next_attempt_id, r.id;
    DELETE FROM supervisor.retry_request q WHERE q.run_id = ANY (asked);
END $$;
