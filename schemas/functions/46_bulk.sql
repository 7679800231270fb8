-- Many runs of one job in one call: as so many calls of enqueue in one transaction, and set-based.

CREATE OR REPLACE FUNCTION supervisor.enqueue_many(
    job text, payloads jsonb[], keys text[] DEFAULT NULL, not_before timestamptz DEFAULT NULL,
    priority integer DEFAULT NULL)
RETURNS TABLE (place bigint, id bigint, state text, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    what  supervisor.job_definition;
    count integer := cardinality(enqueue_many.payloads);
    ids   bigint[];
    made  bigint[];
    base  jsonb;
    wrong text;
BEGIN
    IF count > 10000 THEN
        RAISE EXCEPTION '% runs in one call, over the limit of 10000', count USING ERRCODE = 'TN022';
    END IF;
    IF cardinality(enqueue_many.keys) <> count THEN
        RAISE EXCEPTION 'as many keys as payloads, or none' USING ERRCODE = 'TN022';
    END IF;
    IF NOT supervisor.in_calendar(enqueue_many.not_before) THEN
        RAISE EXCEPTION 'a run is due at a finite time in the years 1 to 9999' USING ERRCODE = 'TN022';
    END IF;
    what := supervisor.locked_job(enqueue_many.job);
    IF what.concurrency_policy <> 'allow' THEN
        -- each may be refused, or take the place of another: one after the other
        RETURN QUERY SELECT m.place, e.id, e.state, e.created
            FROM unnest(enqueue_many.payloads, enqueue_many.keys) WITH ORDINALITY AS m(payload, key, place)
            CROSS JOIN LATERAL supervisor.enqueue(enqueue_many.job, m.payload, m.key, enqueue_many.not_before,
                enqueue_many.priority) e;
        RETURN;
    END IF;

    base := supervisor.base_payload(what);
    -- the same arguments are judged once
    SELECT format('run %s of the call: %s', m.place, f.fault) INTO wrong
        FROM (SELECT min(u.place) AS place, u.payload
              FROM unnest(enqueue_many.payloads) WITH ORDINALITY AS u(payload, place)
              WHERE jsonb_typeof(u.payload) = 'object' OR u.payload IS NULL
              GROUP BY u.payload) m
        CROSS JOIN LATERAL (SELECT supervisor.argument_fault(what, coalesce(m.payload, '{}')) AS fault) f
        WHERE f.fault IS NOT NULL ORDER BY m.place LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'TN022';
    END IF;
    SELECT format('run %s of the call: %s', m.place, CASE
            WHEN jsonb_typeof(m.payload) <> 'object' THEN 'the payload must be a JSON object'
            WHEN octet_length((base || m.payload)::text) > 262144 THEN 'the payload is over the limit of 262144 bytes'
            WHEN m.key ~ '^(time|retry|event):' THEN 'keys that begin with time:, retry: or event: are reserved'
            ELSE 'a key has 1 to 200 characters' END) INTO wrong
        FROM unnest(enqueue_many.payloads, enqueue_many.keys) WITH ORDINALITY AS m(payload, key, place)
        WHERE jsonb_typeof(m.payload) <> 'object' OR octet_length((base || m.payload)::text) > 262144
           OR m.key ~ '^(time|retry|event):' OR length(m.key) NOT BETWEEN 1 AND 200
        ORDER BY m.place LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'TN022';
    END IF;

    PERFORM supervisor.acting('enqueue', NULL, 'TRIGGERED');
    ids := ARRAY(SELECT nextval('supervisor.job_run_id') FROM generate_series(1, count));
    IF enqueue_many.keys IS NULL THEN
        INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, action, payload, priority, max_attempts,
            timeout_seconds, backoff_seconds, backoff_max_seconds, not_before)
        SELECT m.id, m.id, what.id, what.domain, what.action, base || coalesce(m.payload, '{}'),
            coalesce(enqueue_many.priority, what.priority), what.max_attempts, what.timeout_seconds,
            what.backoff_seconds, what.backoff_max_seconds, coalesce(enqueue_many.not_before, clock_timestamp())
        FROM unnest(ids, enqueue_many.payloads) AS m(id, payload);
        PERFORM pg_notify('tenure', 'run');
        RETURN QUERY SELECT m.place, m.id, 'PENDING', true FROM unnest(ids) WITH ORDINALITY AS m(id, place);
        RETURN;
    END IF;

    -- in the order of the keys, so that two calls with the same ones do not wait for each other in a circle
    WITH added AS (
        INSERT INTO supervisor.job_run AS r (id, root_id, job_definition_id, domain, action, payload, priority,
            max_attempts, timeout_seconds, backoff_seconds, backoff_max_seconds, idempotency_key, not_before)
        SELECT m.id, m.id, what.id, what.domain, what.action, base || coalesce(m.payload, '{}'),
            coalesce(enqueue_many.priority, what.priority), what.max_attempts, what.timeout_seconds,
            what.backoff_seconds, what.backoff_max_seconds, m.key, coalesce(enqueue_many.not_before, clock_timestamp())
        FROM unnest(ids, enqueue_many.payloads, enqueue_many.keys) AS m(id, payload, key)
        ORDER BY m.key, m.id
        ON CONFLICT DO NOTHING
        RETURNING r.id)
    SELECT coalesce(array_agg(added.id), '{}') INTO made FROM added;
    PERFORM pg_notify('tenure', 'run');

    SELECT format('key %s was used for run %s with another job or payload', m.key, r.id) INTO wrong
        FROM unnest(ids, enqueue_many.payloads, enqueue_many.keys) AS m(id, payload, key)
        JOIN supervisor.job_run r ON r.idempotency_key = m.key
        WHERE r.job_definition_id <> what.id OR r.payload <> base || coalesce(m.payload, '{}') LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'TN021';
    END IF;
    RETURN QUERY SELECT m.place, coalesce(r.id, m.id), coalesce(r.state, 'PENDING'), coalesce(r.id, m.id) = m.id
        FROM unnest(ids, enqueue_many.keys) WITH ORDINALITY AS m(id, key, place)
        LEFT JOIN supervisor.job_run r ON r.idempotency_key = m.key;
    -- retention may have removed the old run between the two looks: then the key is free, and the call is repeated
    IF EXISTS (SELECT FROM unnest(ids, enqueue_many.keys) AS m(id, key)
               WHERE m.key IS NOT NULL AND NOT m.id = ANY (made)
                 AND NOT EXISTS (SELECT FROM supervisor.job_run r WHERE r.idempotency_key = m.key)) THEN
        RAISE EXCEPTION 'a run of the same key was just removed' USING ERRCODE = 'serialization_failure';
    END IF;
END $$;

-- A person's own: as the application's, and audited, in one row.
CREATE OR REPLACE FUNCTION supervisor.trigger_jobs(
    p_actor text, p_job text, p_payloads jsonb[], p_keys text[], p_not_before timestamptz, p_priority integer)
RETURNS TABLE (place bigint, id bigint, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    ids  bigint[];
    made boolean[];
BEGIN
    SELECT coalesce(array_agg(e.id ORDER BY e.place), '{}'), coalesce(array_agg(e.created ORDER BY e.place), '{}')
        INTO ids, made
        FROM supervisor.enqueue_many(p_job, p_payloads, p_keys, p_not_before, p_priority) e;
    PERFORM supervisor.note_audit(p_actor, 'job.trigger', 'job:' || p_job, NULL, jsonb_build_object(
        'runs', cardinality(ids), 'created', cardinality(array_positions(made, true)),
        'first', (SELECT min(n) FROM unnest(ids) n), 'last', (SELECT max(n) FROM unnest(ids) n)));
    RETURN QUERY SELECT m.place, m.id, m.created FROM unnest(ids, made) WITH ORDINALITY AS m(id, created, place);
END $$;
