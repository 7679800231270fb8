-- How runs come to be. Everything that makes one goes through make_run, which holds the concurrency policy.

-- A run of a definition whose row the caller has locked. NULL = the key exists already; reason = why none was made.
CREATE OR REPLACE FUNCTION supervisor.make_run(
    p_job supervisor.job_definition, p_payload jsonb, p_key text, p_scheduled_for timestamptz,
    p_not_before timestamptz, p_priority integer, OUT run_id bigint, OUT refused text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_variable
DECLARE
    live bigint[];
BEGIN
    IF p_key IS NOT NULL AND EXISTS (SELECT FROM supervisor.job_run r WHERE r.idempotency_key = p_key) THEN
        RETURN;
    END IF;
    IF p_job.concurrency_policy <> 'allow' THEN
        live := supervisor.occupying(p_job.id);
        IF cardinality(live) >= p_job.concurrency THEN
            IF p_job.concurrency_policy = 'forbid' THEN
                refused := format('job %s forbids it: run %s has not ended', p_job.name, live[1]);
                RETURN;
            END IF;
            -- replace: the oldest make room; the new one waits until they have stopped
            UPDATE supervisor.job_run r SET cancel_requested_at = clock_timestamp()
            WHERE r.id = ANY (live[1:cardinality(live) - p_job.concurrency + 1]) AND r.cancel_requested_at IS NULL
              AND r.state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED');
        END IF;
    END IF;
    run_id := nextval('supervisor.job_run_id');
    INSERT INTO supervisor.job_run AS r (id, root_id, job_definition_id, domain, action, payload, priority, max_attempts,
        timeout_seconds, backoff_seconds, backoff_max_seconds, idempotency_key, scheduled_for, not_before)
    VALUES (run_id, run_id, p_job.id, p_job.domain, p_job.action, p_payload, coalesce(p_priority, p_job.priority),
        p_job.max_attempts, p_job.timeout_seconds, p_job.backoff_seconds, p_job.backoff_max_seconds, p_key,
        p_scheduled_for, coalesce(p_not_before, clock_timestamp()))
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        run_id := NULL;
    END IF;
END $$;

-- The runs that take a place of a bounded definition, oldest first: live ones, owed retries, and executors that may
-- not have stopped yet. Creating is not executing, so here the database's clock alone says when a worker has stopped.
CREATE OR REPLACE FUNCTION supervisor.occupying(p_job_definition_id bigint) RETURNS bigint[]
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
    SELECT coalesce(array_agg(o.id ORDER BY o.root_id, o.id), '{}') FROM (
        -- one SELECT an index: an OR would read the definition's history
        SELECT r.id, r.root_id FROM supervisor.job_run r
        WHERE r.job_definition_id = p_job_definition_id AND r.state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED')
        UNION
        SELECT r.id, r.root_id FROM supervisor.job_run r
        WHERE r.job_definition_id = p_job_definition_id AND r.retry_at IS NOT NULL AND r.next_attempt_id IS NULL
        UNION
        SELECT r.id, r.root_id
        FROM supervisor.job_run r JOIN supervisor.worker w ON w.worker_id = r.assigned_worker_id
        WHERE r.job_definition_id = p_job_definition_id AND r.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED')
          AND r.started_at IS NOT NULL AND r.executor_stopped_at IS NULL AND r.next_attempt_id IS NULL
          AND w.heartbeat_at + make_interval(secs => w.stop_bound_seconds) > clock_timestamp()) o
$$;

-- Work appears exactly if the caller's transaction commits.
CREATE OR REPLACE FUNCTION supervisor.enqueue(
    job text, payload jsonb DEFAULT '{}', key text DEFAULT NULL, not_before timestamptz DEFAULT NULL,
    priority integer DEFAULT NULL)
RETURNS TABLE (id bigint, state text, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    what   supervisor.job_definition;
    old    record;
    made   record;
    wanted jsonb := coalesce(enqueue.payload, '{}');
    fault  text;
BEGIN
    IF jsonb_typeof(wanted) <> 'object' THEN
        RAISE EXCEPTION 'the payload must be a JSON object' USING ERRCODE = 'TN022';
    END IF;
    IF enqueue.key ~ '^(time|retry|event):' THEN
        RAISE EXCEPTION 'keys that begin with time:, retry: or event: are reserved' USING ERRCODE = 'TN022';
    END IF;
    IF length(enqueue.key) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'a key has 1 to 200 characters' USING ERRCODE = 'TN022';
    END IF;
    IF NOT supervisor.in_calendar(enqueue.not_before) THEN
        RAISE EXCEPTION 'a run is due at a finite time in the years 1 to 9999' USING ERRCODE = 'TN022';
    END IF;
    what := supervisor.locked_job(enqueue.job);
    IF wanted <> '{}' OR what.takes <> '{}' THEN
        fault := supervisor.argument_fault(what, wanted);
        IF fault IS NOT NULL THEN
            RAISE EXCEPTION '%', fault USING ERRCODE = 'TN022';
        END IF;
    END IF;
    wanted := CASE WHEN what.parameters IS NULL THEN what.payload ELSE supervisor.base_payload(what) END || wanted;
    IF octet_length(wanted::text) > 262144 THEN
        RAISE EXCEPTION 'the payload has % bytes, over the limit of 262144', octet_length(wanted::text)
            USING ERRCODE = 'TN022';
    END IF;

    PERFORM supervisor.acting('enqueue', NULL, 'TRIGGERED');
    LOOP
        made := supervisor.make_run(what, wanted, enqueue.key, NULL, enqueue.not_before, enqueue.priority);
        IF made.refused IS NOT NULL THEN
            RAISE EXCEPTION '%', made.refused USING ERRCODE = 'TN021';
        END IF;
        IF made.run_id IS NOT NULL THEN
            PERFORM pg_notify('tenure', 'run');
            RETURN QUERY SELECT made.run_id, 'PENDING', true;
            RETURN;
        END IF;
        SELECT r.id, r.state, r.payload, r.job_definition_id INTO old FROM supervisor.job_run r
            WHERE r.idempotency_key = enqueue.key;
        -- retention may remove the old run between the two looks: then the key is free
        EXIT WHEN FOUND;
    END LOOP;
    IF old.job_definition_id <> what.id OR old.payload <> wanted THEN
        RAISE EXCEPTION 'key % was used for run % with another job or payload', enqueue.key, old.id
            USING ERRCODE = 'TN021';
    END IF;
    RETURN QUERY SELECT old.id, old.state, false;
END $$;

-- The definition by name: shared by enqueuers, alone where its runs are counted.
CREATE OR REPLACE FUNCTION supervisor.locked_job(p_name text) RETURNS supervisor.job_definition
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    what supervisor.job_definition;
BEGIN
    SELECT d.* INTO what FROM supervisor.job_definition d WHERE d.name = p_name AND d.removed_at IS NULL
        FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no job %', p_name USING ERRCODE = 'TN020';
    END IF;
    IF what.concurrency_policy <> 'allow' THEN
        SELECT d.* INTO what FROM supervisor.job_definition d WHERE d.id = what.id FOR NO KEY UPDATE;
    END IF;
    RETURN what;
END $$;

-- Schedules that want a look, with what is needed to compute their instants.
CREATE OR REPLACE FUNCTION supervisor.read_schedules(p_limit integer)
RETURNS TABLE (id bigint, cron text, timezone text, missed text, missed_limit integer, fired_until timestamptz,
               at timestamptz)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off AS $$
    SELECT d.id, d.cron, d.timezone, d.missed, d.missed_limit, d.fired_until, clock_timestamp()
    FROM supervisor.job_definition d
    WHERE d.cron IS NOT NULL AND d.enabled AND d.removed_at IS NULL AND d.next_fire_at <= clock_timestamp()
    ORDER BY d.next_fire_at, d.id LIMIT p_limit
$$;

-- The instants of many schedules in one call. A schedule that was changed or fired meanwhile (its cron, zone or
-- watermark is not the one the instants were computed from) is left alone.
CREATE OR REPLACE FUNCTION supervisor.fire(
    p_epoch bigint, p_ids bigint[], p_crons text[], p_timezones text[], p_fired_until timestamptz[],
    p_now timestamptz[], p_next timestamptz[], p_errors text[],
    p_instant_ids bigint[], p_instants timestamptz[],
    p_skipped_ids bigint[], p_skipped_first timestamptz[], p_skipped_last timestamptz[], p_skipped_counts integer[])
RETURNS TABLE (id bigint, job_definition_id bigint, scheduled_for timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    free  bigint[];
    valid bigint[];
    slot  record;
    made  record;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    PERFORM supervisor.acting('leader', p_epoch, 'SCHEDULED');
    -- one that an application holds in its transaction comes with the next look
    SELECT coalesce(array_agg(x.id), '{}') INTO free FROM (
        SELECT d.id FROM supervisor.job_definition d WHERE d.id = ANY (p_ids)
        ORDER BY d.id FOR NO KEY UPDATE SKIP LOCKED) x;
    WITH moved AS (
        UPDATE supervisor.job_definition d SET fired_until = m.now, next_fire_at = m.next, schedule_error = m.error
        FROM unnest(p_ids, p_crons, p_timezones, p_fired_until, p_now, p_next, p_errors)
            AS m(id, cron, timezone, fired_until, now, next, error)
        WHERE d.id = m.id AND d.id = ANY (free) AND d.cron = m.cron AND d.timezone = m.timezone AND d.fired_until = m.fired_until
          AND m.now >= d.fired_until AND d.enabled AND d.removed_at IS NULL
        RETURNING d.id)
    SELECT coalesce(array_agg(moved.id), '{}') INTO valid FROM moved;

    INSERT INTO supervisor.skipped_fire (job_definition_id, reason, first_instant, last_instant, instants)
    SELECT m.id, 'MISSED', m.first, m.last, m.count
    FROM unnest(p_skipped_ids, p_skipped_first, p_skipped_last, p_skipped_counts) AS m(id, first, last, count)
    WHERE m.id = ANY (valid);

    -- unbounded definitions in one statement, the others one by one
    RETURN QUERY
    INSERT INTO supervisor.job_run AS r (id, root_id, job_definition_id, domain, action, payload, priority, max_attempts,
        timeout_seconds, backoff_seconds, backoff_max_seconds, idempotency_key, scheduled_for, not_before)
    SELECT n.id, n.id, d.id, d.domain, d.action,
        CASE WHEN d.parameters IS NULL THEN d.payload ELSE supervisor.base_payload(d) END,
        d.priority, d.max_attempts, d.timeout_seconds, d.backoff_seconds, d.backoff_max_seconds,
        supervisor.time_key(d.id, n.instant), n.instant, n.instant
    FROM (SELECT m.id AS job_id, m.instant, nextval('supervisor.job_run_id') AS id
          FROM unnest(p_instant_ids, p_instants) AS m(id, instant) WHERE m.id = ANY (valid)) n
    JOIN supervisor.job_definition d ON d.id = n.job_id AND d.concurrency_policy = 'allow'
    ON CONFLICT DO NOTHING
    RETURNING r.id, r.job_definition_id, r.scheduled_for;

    FOR slot IN SELECT d, m.instant FROM unnest(p_instant_ids, p_instants) AS m(id, instant)
        JOIN supervisor.job_definition d ON d.id = m.id AND d.concurrency_policy <> 'allow'
        WHERE m.id = ANY (valid) ORDER BY m.instant LOOP
        made := supervisor.make_run(slot.d, supervisor.base_payload(slot.d),
                                    supervisor.time_key((slot.d).id, slot.instant), slot.instant, slot.instant, NULL);
        IF made.refused IS NOT NULL THEN
            INSERT INTO supervisor.skipped_fire (job_definition_id, reason, first_instant, last_instant, instants)
            VALUES ((slot.d).id, 'FORBID', slot.instant, slot.instant, 1);
        ELSIF made.run_id IS NOT NULL THEN
            RETURN QUERY SELECT made.run_id, (slot.d).id, slot.instant;
        END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION supervisor.time_key(p_job_definition_id bigint, p_instant timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('time:%s:%s', p_job_definition_id,
                  to_char(p_instant AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
$$;

-- An event, from the API, the command line or inside an application's transaction.
CREATE OR REPLACE FUNCTION supervisor.emit(type text, payload jsonb DEFAULT '{}', dedupe_key text DEFAULT NULL)
RETURNS TABLE (id bigint, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    event_id bigint;
BEGIN
    IF emit.type ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$' IS NOT TRUE THEN
        RAISE EXCEPTION 'an event''s type has 1 to 200 letters, digits and . _ : / -, of which the first is a letter or a digit'
            USING ERRCODE = 'TN022';
    END IF;
    IF jsonb_typeof(coalesce(emit.payload, '{}')) <> 'object' THEN
        RAISE EXCEPTION 'the payload must be a JSON object' USING ERRCODE = 'TN022';
    END IF;
    IF octet_length(emit.payload::text) > 65536 THEN
        RAISE EXCEPTION 'the payload has % bytes, over the limit of 65536', octet_length(emit.payload::text)
            USING ERRCODE = 'TN022';
    END IF;
    IF supervisor.number_fault(emit.payload) IS NOT NULL THEN
        RAISE EXCEPTION 'the payload %', supervisor.number_fault(emit.payload) USING ERRCODE = 'TN022';
    END IF;
    IF length(emit.dedupe_key) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'a dedupe key has 1 to 200 characters' USING ERRCODE = 'TN022';
    END IF;
    LOOP
        INSERT INTO supervisor.event AS e (type, payload, dedupe_key)
        VALUES (emit.type, coalesce(emit.payload, '{}'), emit.dedupe_key)
        ON CONFLICT (dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
        RETURNING e.id INTO event_id;
        IF event_id IS NOT NULL THEN
            PERFORM pg_notify('tenure', 'event');
            RETURN QUERY SELECT event_id, true;
            RETURN;
        END IF;
        RETURN QUERY SELECT e.id, false FROM supervisor.event e WHERE e.dedupe_key = emit.dedupe_key;
        EXIT WHEN FOUND;
    END LOOP;
END $$;

-- Runs out of events: one event, every definition that waits for its type; the event stands in the run's payload.
CREATE OR REPLACE FUNCTION supervisor.process_events(p_epoch bigint, p_limit integer)
RETURNS TABLE (id bigint, runs integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    free  bigint[];
    news  record;
    job   supervisor.job_definition;
    made  record;
    count integer;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    PERFORM supervisor.acting('leader', p_epoch, 'EVENT');
    SELECT coalesce(array_agg(x.id), '{}') INTO free FROM (
        SELECT d.id FROM supervisor.job_definition d
        WHERE d.event_type IN (SELECT u.type FROM supervisor.event u WHERE u.processed_at IS NULL
                               ORDER BY u.created_at LIMIT p_limit)
          AND d.enabled AND d.removed_at IS NULL
        ORDER BY d.id FOR NO KEY UPDATE SKIP LOCKED) x;
    FOR news IN SELECT e.id, e.type, e.payload, e.created_at FROM supervisor.event e WHERE e.processed_at IS NULL
        ORDER BY e.created_at LIMIT p_limit FOR UPDATE SKIP LOCKED LOOP
        -- an application holds one of its definitions: this event waits for the next look
        CONTINUE WHEN EXISTS (SELECT FROM supervisor.job_definition d WHERE d.event_type = news.type AND d.enabled
            AND d.removed_at IS NULL AND NOT d.id = ANY (free));
        count := 0;
        FOR job IN SELECT d.* FROM supervisor.job_definition d
            WHERE d.event_type = news.type AND d.enabled AND d.removed_at IS NULL ORDER BY d.id LOOP
            made := supervisor.make_run(job,
                supervisor.base_payload(job) || jsonb_build_object('event', jsonb_build_object('id', news.id, 'type', news.type,
                    'payload', news.payload, 'created_at', news.created_at)),
                format('event:%s:%s', news.id, job.id), NULL, NULL, NULL);
            count := count + (made.run_id IS NOT NULL)::integer;
        END LOOP;
        UPDATE supervisor.event e SET processed_at = clock_timestamp(), runs = count WHERE e.id = news.id;
        RETURN QUERY SELECT news.id, count;
    END LOOP;
END $$;

-- The newest attempt of a run's root; owed = another one follows. Only for the logins that lead or serve, and for the one
-- that asked for the run (or a member of its role); the runs from before that was noted are everybody's.
CREATE OR REPLACE FUNCTION supervisor.run_outcome(p_run_id bigint)
RETURNS TABLE (id bigint, root_id bigint, attempt integer, state text, owed boolean, result jsonb, error_code text,
               error_message text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
    SELECT n.id, n.root_id, n.attempt, n.state, n.retry_at IS NOT NULL AND n.next_attempt_id IS NULL, n.result,
        n.error_code, n.error_message
    FROM supervisor.job_run r JOIN supervisor.job_run f ON f.id = r.root_id JOIN supervisor.job_run n ON n.root_id = r.root_id
    WHERE r.id = p_run_id
      AND (f.enqueued_by IS NULL OR f.enqueued_by = session_user OR EXISTS (SELECT FROM pg_roles o
           WHERE o.rolname IN (f.enqueued_by, 'tenure_control') AND pg_has_role(session_user, o.oid, 'MEMBER')))
    ORDER BY n.attempt DESC LIMIT 1
$$;
