-- The worker's moves. Each matches the claim; none needs a leader.
-- Planner switches: these calls join small arrays to a large table, and with cold statistics the planner would
-- read the table. And what was locked is looked up by its key, one by one (LATERAL ... OFFSET 0): the planner would
-- compare every row that this worker holds with every claim of the call.
-- Generic plans, here and in the leader's: for a call with one run the planner would believe that a plan of its own is
-- cheaper, and make one at each call, for half of the call's time. With these switches they are the same.

CREATE OR REPLACE FUNCTION supervisor.retry_due(
    p_error_code text, p_starts integer, p_max_attempts integer, p_cancel timestamptz,
    p_delay_seconds double precision, p_backoff double precision, p_backoff_max double precision)
RETURNS timestamptz
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    -- when the next attempt is due; NULL = none is owed. What was lost, drained or dropped did not fail: at once.
    SELECT CASE
        WHEN p_cancel IS NOT NULL THEN NULL
        WHEN p_starts - coalesce(p_error_code IN ('DRAINED', 'DROPPED'), false)::integer >= p_max_attempts THEN NULL
        WHEN p_error_code IN ('DRAINED', 'DROPPED', 'CONTINUATION_EXPIRED', 'CONTINUATION_LOST')
            THEN clock_timestamp()
        ELSE clock_timestamp() + make_interval(secs => least(31536000, greatest(0, coalesce(
            nullif(p_delay_seconds, 'NaN'),
            random() * least(p_backoff_max, p_backoff * power(2, least(p_starts - 1, 30)))))))
    END
$$;

-- What was given to this worker, in claim order; the domain says in which of its pools it has to fit. Of all runs, or
-- of those with larger ids than p_after (skim.py says why).
DROP FUNCTION IF EXISTS supervisor.assigned(text, uuid);
CREATE OR REPLACE FUNCTION supervisor.assigned(p_worker text, p_secret uuid, p_after bigint DEFAULT 0)
RETURNS TABLE (id bigint, version integer, claim_id uuid, domain text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
    SELECT r.id, r.version, r.claim_id, r.domain FROM supervisor.job_run r
    WHERE r.assigned_worker_id = p_worker AND r.state = 'ASSIGNED' AND r.id > p_after
      AND r.cancel_requested_at IS NULL
      AND EXISTS (SELECT FROM supervisor.worker w WHERE w.worker_id = p_worker AND w.secret = p_secret)
    ORDER BY r.priority DESC, r.not_before, r.id
$$;

-- ASSIGNED -> RUNNING for several claims. Answers RECORDED, ALREADY (a repeated call) or REFUSED, with what to run.
CREATE OR REPLACE FUNCTION supervisor.start(
    p_worker text, p_secret uuid, p_beat_no bigint, p_ids bigint[], p_versions integer[], p_claims uuid[])
RETURNS TABLE (id bigint, answer text, root_id bigint, domain text, action text, payload jsonb, attempt integer,
               leader_epoch bigint, timeout_seconds double precision)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    here    record;
    term    record;
    started bigint[];
BEGIN
    here := supervisor.server_identity();
    -- a start is a contact
    UPDATE supervisor.worker w SET heartbeat_at = clock_timestamp(), beat_seq = w.beat_seq + 1
        WHERE w.worker_id = p_worker AND w.secret = p_secret AND w.state <> 'gone';
    IF NOT FOUND THEN
        RETURN QUERY SELECT m.id, 'REFUSED', NULL::bigint, NULL::text, NULL::text, NULL::jsonb, NULL::integer,
            NULL::bigint, NULL::double precision FROM unnest(p_ids) AS m(id);
        RETURN;
    END IF;
    SELECT e.epoch, e.first_epoch,
           (e.system_identifier, e.timeline) IS NOT DISTINCT FROM (here.system_identifier, here.timeline) AS current
        INTO term FROM supervisor.leader_epoch e;
    PERFORM FROM supervisor.job_run r WHERE r.id = ANY (p_ids) ORDER BY r.id FOR UPDATE;

    PERFORM supervisor.acting('worker', NULL, 'STARTED');
    WITH mine AS MATERIALIZED (
        SELECT r.id
        FROM unnest(p_ids, p_versions, p_claims) AS m(id, version, claim_id)
        CROSS JOIN LATERAL (SELECT o.* FROM supervisor.job_run o WHERE o.id = m.id OFFSET 0) r
        WHERE r.state = 'ASSIGNED' AND r.version = m.version AND r.claim_id = m.claim_id
          AND r.assigned_worker_id = p_worker AND r.cancel_requested_at IS NULL AND r.starts < r.max_attempts
          -- an assignment made before a failover may have been lost and made again
          AND term.current AND r.assigned_epoch >= term.first_epoch
    ), moved AS (
        UPDATE supervisor.job_run r SET state = 'RUNNING', version = r.version + 1, starts = r.starts + 1,
            leader_epoch = term.epoch, start_beat_no = p_beat_no, started_at = clock_timestamp()
        FROM mine WHERE r.id = mine.id
        RETURNING r.id)
    SELECT coalesce(array_agg(moved.id), '{}') INTO started FROM moved;

    IF cardinality(started) < cardinality(p_ids) THEN
        -- repeated after a lost answer: the beats built since then say nothing about it
        UPDATE supervisor.job_run r SET start_beat_no = p_beat_no
        FROM unnest(p_ids, p_claims) AS m(id, claim_id)
        WHERE r.id = m.id AND r.claim_id = m.claim_id AND r.state = 'RUNNING' AND r.assigned_worker_id = p_worker
          AND NOT r.id = ANY (started) AND r.start_beat_no < p_beat_no;
        -- and its worker is heard again, as by a beat
        PERFORM supervisor.acting('worker', NULL, 'CONFIRMED');
        UPDATE supervisor.job_run r SET continuation_state = 'NONE', continuation_check_deadline_at = NULL,
            version = r.version + 1
        FROM unnest(p_ids, p_claims) AS m(id, claim_id)
        WHERE r.id = m.id AND r.claim_id = m.claim_id AND r.state = 'RUNNING' AND r.assigned_worker_id = p_worker
          AND r.continuation_state = 'CONFIRMING' AND r.continuation_reason = 'SILENT'
          AND r.continuation_check_deadline_at > clock_timestamp();
    END IF;

    RETURN QUERY SELECT m.id,
        CASE WHEN m.id = ANY (started) THEN 'RECORDED'
             WHEN r.state = 'RUNNING' AND r.claim_id = m.claim_id AND r.assigned_worker_id = p_worker
                  AND r.cancel_requested_at IS NULL
                  AND coalesce(r.continuation_check_deadline_at > clock_timestamp(), true) THEN 'ALREADY'
             ELSE 'REFUSED' END,
        r.root_id, r.domain, r.action, r.payload, r.attempt, r.leader_epoch, r.timeout_seconds
    FROM unnest(p_ids, p_claims) AS m(id, claim_id)
    -- of a run that was not given to it, a worker learns nothing
    LEFT JOIN supervisor.job_run r ON r.id = m.id AND r.claim_id = m.claim_id AND r.assigned_worker_id = p_worker;
END $$;

-- The contact of a replica, one call for all it holds. Its row lock is what orders beats against expiry.
CREATE OR REPLACE FUNCTION supervisor.beat(
    p_worker text, p_secret uuid, p_beat_no bigint, p_epoch_seen bigint, p_claims uuid[], p_domains text[], p_slots integer,
    p_stop_bound_seconds double precision, p_draining boolean)
RETURNS TABLE (listed uuid[], cancels uuid[], drain boolean, leader_live boolean, epoch bigint,
               system_identifier bigint, timeline integer, assigned boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    here   record;
    me     record;
    leader record;
    touch  bigint[];
BEGIN
    -- the leader and the pages read it: the table's constraints, in words (NaN is more than any number)
    IF p_domains::text ~ '^\{([a-z][a-z0-9_]{0,62}(,[a-z][a-z0-9_]{0,62})*)?\}$' IS NOT TRUE OR cardinality(p_domains) > 64 THEN
        RAISE EXCEPTION 'a worker has a plain list of at most 64 domains, each of 1 to 63 lower-case letters, digits and _'
            USING ERRCODE = 'TN022';
    END IF;
    IF (p_slots BETWEEN 0 AND 10000) IS NOT TRUE THEN
        RAISE EXCEPTION 'a worker has 0 to 10000 slots' USING ERRCODE = 'TN022';
    END IF;
    IF (p_stop_bound_seconds > 0 AND p_stop_bound_seconds <= 3600) IS NOT TRUE THEN
        RAISE EXCEPTION 'a stop bound is more than 0 and at most 3600 seconds' USING ERRCODE = 'TN022';
    END IF;
    IF (length(p_worker) BETWEEN 1 AND 200) IS NOT TRUE THEN
        RAISE EXCEPTION 'the name of a worker has 1 to 200 characters' USING ERRCODE = 'TN022';
    END IF;

    INSERT INTO supervisor.worker AS w (worker_id, secret, state, domains, slots, heartbeat_at, beat_no,
        stop_bound_seconds)
    VALUES (p_worker, p_secret, CASE WHEN p_draining THEN 'draining' ELSE 'active' END, p_domains, p_slots,
            clock_timestamp(), p_beat_no, p_stop_bound_seconds)
    ON CONFLICT (worker_id) DO UPDATE SET heartbeat_at = clock_timestamp(), beat_seq = w.beat_seq + 1,
        beat_no = greatest(w.beat_no, p_beat_no), domains = p_domains, slots = p_slots,
        stop_bound_seconds = greatest(w.stop_bound_seconds, p_stop_bound_seconds),
        state = CASE WHEN w.state = 'active' AND p_draining THEN 'draining' ELSE w.state END
    WHERE w.secret = p_secret
    RETURNING w.state, w.drain_requested_at INTO me;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'worker % is somebody else', p_worker USING ERRCODE = 'TN016';
    END IF;

    here := supervisor.server_identity();
    SELECT e.epoch, e.first_epoch,
           l.expires_at > clock_timestamp() AND e.epoch >= p_epoch_seen
           AND (e.system_identifier, e.timeline) IS NOT DISTINCT FROM (here.system_identifier, here.timeline) AS live,
           (e.system_identifier, e.timeline) IS NOT DISTINCT FROM (here.system_identifier, here.timeline) AS current
        INTO leader FROM supervisor.leader_epoch e, supervisor.leader_lease l;

    -- what this beat has to change, locked in one order; on most beats nothing
    SELECT array_agg(t.id) INTO touch FROM (
        SELECT r.id FROM supervisor.job_run r
        WHERE r.assigned_worker_id = p_worker AND r.state IN ('ASSIGNED', 'RUNNING')
          AND CASE WHEN r.state = 'ASSIGNED' THEN me.state <> 'active'
                   WHEN r.claim_id = ANY (p_claims) THEN r.continuation_state = 'CONFIRMING'
                   ELSE r.start_beat_no < p_beat_no END
        UNION ALL
        SELECT r.id FROM supervisor.job_run r
        WHERE r.assigned_worker_id = p_worker AND r.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED')
          AND r.started_at IS NOT NULL AND r.executor_stopped_at IS NULL
          AND r.start_beat_no < p_beat_no AND NOT r.claim_id = ANY (p_claims)) t;
    IF touch IS NOT NULL THEN
        PERFORM FROM supervisor.job_run r WHERE r.id = ANY (touch) ORDER BY r.id FOR UPDATE;

        -- a list built after the start that does not name the claim: it is not being executed
        PERFORM supervisor.acting('worker', NULL, 'DROPPED');
        UPDATE supervisor.job_run r SET state = 'FAILED', version = r.version + 1, error_code = 'DROPPED',
            error_message = 'the worker no longer knew this claim', finished_at = clock_timestamp(),
            finished_by = 'worker', executor_stopped_at = clock_timestamp(), continuation_state = 'NONE',
            continuation_check_deadline_at = NULL,
            retry_at = supervisor.retry_due('DROPPED', r.starts, r.max_attempts, r.cancel_requested_at, NULL,
                                            r.backoff_seconds, r.backoff_max_seconds)
        WHERE r.id = ANY (touch) AND r.assigned_worker_id = p_worker AND r.state = 'RUNNING'
          AND r.start_beat_no < p_beat_no AND NOT r.claim_id = ANY (p_claims);
        UPDATE supervisor.job_run r SET executor_stopped_at = clock_timestamp()
        WHERE r.id = ANY (touch) AND r.assigned_worker_id = p_worker
          AND r.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED') AND r.executor_stopped_at IS NULL
          AND r.start_beat_no < p_beat_no AND NOT r.claim_id = ANY (p_claims);

        -- heard again in time: the same attempt goes on
        PERFORM supervisor.acting('worker', NULL, 'CONFIRMED');
        UPDATE supervisor.job_run r SET continuation_state = 'NONE', continuation_check_deadline_at = NULL,
            version = r.version + 1
        WHERE r.id = ANY (touch) AND r.assigned_worker_id = p_worker AND r.state = 'RUNNING'
          AND r.continuation_state = 'CONFIRMING' AND r.claim_id = ANY (p_claims)
          AND r.continuation_check_deadline_at > clock_timestamp()
          AND (r.continuation_reason = 'SILENT' OR leader.live);

        PERFORM supervisor.acting('worker', NULL, 'RELEASED');
        UPDATE supervisor.job_run r SET state = 'ORPHANED', version = r.version + 1, claim_id = NULL,
            assigned_worker_id = NULL
        WHERE r.id = ANY (touch) AND r.assigned_worker_id = p_worker AND r.state = 'ASSIGNED'
          AND me.state <> 'active';
    END IF;

    RETURN QUERY SELECT
        -- ASSIGNED by an older timeline: a failover may have lost its start, and after D another is given the run
        coalesce(array_agg(r.claim_id) FILTER (WHERE r.claim_id = ANY (p_claims)
            AND (r.state = 'RUNNING' OR (leader.current AND r.assigned_epoch >= leader.first_epoch))
            AND coalesce(r.continuation_check_deadline_at > clock_timestamp(), true)), '{}'),
        coalesce(array_agg(r.claim_id) FILTER (WHERE r.claim_id = ANY (p_claims)
            AND r.cancel_requested_at IS NOT NULL), '{}'),
        me.drain_requested_at IS NOT NULL OR me.state = 'gone', coalesce(leader.live, false), leader.epoch,
        here.system_identifier, here.timeline,
        coalesce(bool_or(r.state = 'ASSIGNED'), false)
    FROM supervisor.job_run r
    WHERE r.assigned_worker_id = p_worker AND r.state IN ('ASSIGNED', 'RUNNING');
END $$;

-- The worker sees no leader: it says until when it goes on without one.
CREATE OR REPLACE FUNCTION supervisor.confirm_self(p_worker text, p_claims uuid[], p_stop_bound_seconds double precision)
RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    touch bigint[];
    moved integer;
BEGIN
    IF (p_stop_bound_seconds > 0 AND p_stop_bound_seconds <= 3600) IS NOT TRUE THEN
        RAISE EXCEPTION 'a stop bound is more than 0 and at most 3600 seconds' USING ERRCODE = 'TN022';
    END IF;
    SELECT array_agg(r.id) INTO touch FROM supervisor.job_run r
        WHERE r.assigned_worker_id = p_worker AND r.state = 'RUNNING' AND r.claim_id = ANY (p_claims);
    PERFORM FROM supervisor.job_run r WHERE r.id = ANY (touch) ORDER BY r.id FOR UPDATE;
    PERFORM supervisor.acting('worker', NULL, 'NO_LEADER');
    UPDATE supervisor.job_run r SET continuation_state = 'CONFIRMING', continuation_reason = 'NO_LEADER',
        version = r.version + 1,
        continuation_check_deadline_at = clock_timestamp() + make_interval(secs => p_stop_bound_seconds)
    WHERE r.id = ANY (touch) AND r.state = 'RUNNING' AND r.continuation_state = 'NONE' AND r.claim_id = ANY (p_claims)
      AND r.assigned_worker_id = p_worker;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN moved;
END $$;

-- The end of attempts. RECORDED, ALREADY (a repeated call), SUPERSEDED (somebody else ended it: kept as evidence).
-- Whatever the answer, the executor has stopped.
CREATE OR REPLACE FUNCTION supervisor.finish(
    p_worker text, p_ids bigint[], p_claims uuid[], p_epochs bigint[], p_states text[], p_results jsonb[],
    p_error_codes text[], p_error_messages text[], p_delays double precision[])
RETURNS TABLE (id bigint, answer text, state text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    ended   bigint[];
    already bigint[];
BEGIN
    IF NOT array['SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED'] @> p_states OR array_position(p_states, NULL) > 0 THEN
        RAISE EXCEPTION 'an attempt ends as SUCCEEDED, FAILED, TIMED_OUT or CANCELED' USING ERRCODE = 'TN022';
    END IF;
    -- its own only: a lock on a run that another worker holds would keep that one from finishing it
    PERFORM FROM supervisor.job_run r WHERE r.id = ANY (p_ids) AND r.claim_id = ANY (p_claims) ORDER BY r.id FOR UPDATE;
    PERFORM supervisor.acting('worker', NULL, NULL);
    WITH mine AS MATERIALIZED (
        SELECT m.*
        FROM unnest(p_ids, p_claims, p_epochs, p_states, p_results, p_error_codes, p_error_messages, p_delays)
            AS m(id, claim_id, epoch, state, result, error_code, error_message, delay)
        CROSS JOIN LATERAL (SELECT o.* FROM supervisor.job_run o WHERE o.id = m.id OFFSET 0) r
        WHERE r.state = 'RUNNING' AND r.claim_id = m.claim_id AND r.assigned_worker_id = p_worker
          -- the row's epoch, not the current leader's: a change of leaders is none of the worker's business
          AND r.leader_epoch = m.epoch
    ), moved AS (
        UPDATE supervisor.job_run r SET state = m.state, version = r.version + 1, result = m.result,
            error_code = m.error_code, error_message = left(m.error_message, 4000),
            finished_at = clock_timestamp(), finished_by = 'worker', executor_stopped_at = clock_timestamp(),
            continuation_state = 'NONE', continuation_check_deadline_at = NULL,
            retry_at = CASE WHEN m.state IN ('FAILED', 'TIMED_OUT') THEN supervisor.retry_due(m.error_code, r.starts,
                r.max_attempts, r.cancel_requested_at, m.delay, r.backoff_seconds, r.backoff_max_seconds) END
        FROM mine m WHERE r.id = m.id
        RETURNING r.id)
    SELECT coalesce(array_agg(moved.id), '{}') INTO ended FROM moved;
    -- a slot is free
    PERFORM pg_notify('tenure', 'run');

    IF cardinality(ended) < cardinality(p_ids) THEN
        SELECT coalesce(array_agg(r.id), '{}') INTO already
        FROM unnest(p_ids, p_claims, p_states) AS m(id, claim_id, state) JOIN supervisor.job_run r ON r.id = m.id
        WHERE r.claim_id = m.claim_id AND r.state = m.state AND r.finished_by = 'worker'
          AND r.error_code IS DISTINCT FROM 'DROPPED' AND NOT r.id = ANY (ended);
        UPDATE supervisor.job_run r SET executor_stopped_at = clock_timestamp()
        FROM unnest(p_ids, p_claims) AS m(id, claim_id)
        WHERE r.id = m.id AND r.claim_id = m.claim_id AND r.assigned_worker_id = p_worker
          AND r.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED') AND r.started_at IS NOT NULL
          AND r.executor_stopped_at IS NULL;
        INSERT INTO supervisor.late_finish (claim_id, run_id, worker_id, leader_epoch, state, result, error_code,
            error_message)
        SELECT m.claim_id, m.id, p_worker, m.epoch, m.state, m.result, m.error_code, left(m.error_message, 4000)
        FROM unnest(p_ids, p_claims, p_epochs, p_states, p_results, p_error_codes, p_error_messages)
            AS m(id, claim_id, epoch, state, result, error_code, error_message)
        WHERE NOT m.id = ANY (ended) AND NOT m.id = ANY (already)
          -- evidence of claims that were given out, not whatever somebody sends
          AND EXISTS (SELECT FROM supervisor.job_run_history h
                      WHERE h.run_id = m.id AND h.claim_id = m.claim_id)
        ON CONFLICT (claim_id, worker_id) DO NOTHING;
    END IF;

    RETURN QUERY SELECT m.id,
        CASE WHEN m.id = ANY (ended) THEN 'RECORDED' WHEN m.id = ANY (already) THEN 'ALREADY' ELSE 'SUPERSEDED' END,
        r.state
    FROM unnest(p_ids) AS m(id) LEFT JOIN supervisor.job_run r ON r.id = m.id;
END $$;

-- Given back before it was started: reassignable at once.
CREATE OR REPLACE FUNCTION supervisor.release(p_worker text, p_ids bigint[], p_claims uuid[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    moved integer;
BEGIN
    -- its own only: a lock on a run that another worker holds would keep that one from finishing it
    PERFORM FROM supervisor.job_run r WHERE r.id = ANY (p_ids) AND r.claim_id = ANY (p_claims) ORDER BY r.id FOR UPDATE;
    PERFORM supervisor.acting('worker', NULL, 'RELEASED');
    UPDATE supervisor.job_run r SET state = 'ORPHANED', version = r.version + 1, claim_id = NULL,
        assigned_worker_id = NULL
    FROM unnest(p_ids, p_claims) AS m(id, claim_id)
    WHERE r.id = m.id AND r.claim_id = m.claim_id AND r.state = 'ASSIGNED' AND r.assigned_worker_id = p_worker;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved > 0 THEN
        PERFORM pg_notify('tenure', 'run');
    END IF;
    RETURN moved;
END $$;

-- The last call of a replica: nothing is assigned to it afterwards, and its name is never used again.
CREATE OR REPLACE FUNCTION supervisor.leave(p_worker text, p_secret uuid) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    touch bigint[];
    moved integer;
BEGIN
    UPDATE supervisor.worker w SET state = 'gone', beat_seq = w.beat_seq + 1, heartbeat_at = clock_timestamp()
        WHERE w.worker_id = p_worker AND w.secret = p_secret;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'worker % is somebody else', p_worker USING ERRCODE = 'TN016';
    END IF;
    SELECT array_agg(r.id) INTO touch FROM supervisor.job_run r
        WHERE r.assigned_worker_id = p_worker AND r.state = 'ASSIGNED';
    PERFORM FROM supervisor.job_run r WHERE r.id = ANY (touch) ORDER BY r.id FOR UPDATE;
    PERFORM supervisor.acting('worker', NULL, 'RELEASED');
    UPDATE supervisor.job_run r SET state = 'ORPHANED', version = r.version + 1, claim_id = NULL,
        assigned_worker_id = NULL
    WHERE r.id = ANY (touch) AND r.assigned_worker_id = p_worker AND r.state = 'ASSIGNED';
    GET DIAGNOSTICS moved = ROW_COUNT;
    PERFORM pg_notify('tenure', 'run');
    RETURN moved;
END $$;

-- Log lines of an attempt, by its claim; a repeated call adds nothing.
CREATE OR REPLACE FUNCTION supervisor.append_log(
    p_worker text, p_run_id bigint, p_claim uuid, p_seqs integer[], p_streams text[], p_bodies text[])
RETURNS integer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH added AS (
        INSERT INTO supervisor.job_run_log (run_id, seq, stream, body)
        SELECT r.id, m.seq, m.stream, m.body
        FROM supervisor.job_run r, unnest(p_seqs, p_streams, p_bodies) AS m(seq, stream, body)
        WHERE r.id = p_run_id AND r.claim_id = p_claim AND r.assigned_worker_id = p_worker
          AND r.started_at IS NOT NULL
        ON CONFLICT (run_id, seq) DO NOTHING
        RETURNING 1)
    SELECT count(*)::integer FROM added
$$;
