-- What people and applications ask for. Each request leaves an audit row in the same transaction.

-- Work appears exactly if the caller's transaction commits.
CREATE OR REPLACE FUNCTION supervisor.enqueue(
    job text, payload jsonb DEFAULT '{}', key text DEFAULT NULL, not_before timestamptz DEFAULT NULL,
    priority integer DEFAULT NULL)
RETURNS TABLE (id bigint, state text, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    what   record;
    old    record;
    wanted jsonb := coalesce(enqueue.payload, '{}');
    run_id bigint;
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
    SELECT d.* INTO what FROM supervisor.job_definition d WHERE d.name = enqueue.job AND d.removed_at IS NULL
        FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no job %', enqueue.job USING ERRCODE = 'TN020';
    END IF;
    wanted := what.payload || wanted;
    IF octet_length(wanted::text) > 262144 THEN
        RAISE EXCEPTION 'the payload has % bytes, over the limit of 262144', octet_length(wanted::text)
            USING ERRCODE = 'TN022';
    END IF;

    run_id := nextval('supervisor.job_run_id');
    PERFORM supervisor.acting('enqueue', NULL, 'TRIGGERED');
    INSERT INTO supervisor.job_run AS r (id, root_id, job_definition_id, domain, action, payload, priority, max_attempts,
        timeout_seconds, backoff_seconds, backoff_max_seconds, idempotency_key, not_before)
    VALUES (run_id, run_id, what.id, what.domain, what.action, wanted, coalesce(enqueue.priority, what.priority),
        what.max_attempts, what.timeout_seconds, what.backoff_seconds, what.backoff_max_seconds, enqueue.key,
        coalesce(enqueue.not_before, clock_timestamp()))
    ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
    IF FOUND THEN
        PERFORM pg_notify('tenure', 'run');
        RETURN QUERY SELECT run_id, 'PENDING', true;
        RETURN;
    END IF;
    SELECT r.id, r.state, r.payload, r.job_definition_id INTO old FROM supervisor.job_run r
        WHERE r.idempotency_key = enqueue.key;
    IF old.job_definition_id <> what.id OR old.payload <> wanted THEN
        RAISE EXCEPTION 'key % was used for run % with another job or payload', enqueue.key, old.id
            USING ERRCODE = 'TN021';
    END IF;
    RETURN QUERY SELECT old.id, old.state, false;
END $$;

CREATE OR REPLACE FUNCTION supervisor.note_audit(
    p_actor text, p_action text, p_target text, p_before jsonb, p_after jsonb) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO supervisor.audit (actor, action, target, before, after)
    VALUES (p_actor, p_action, p_target, p_before, p_after)
$$;

CREATE OR REPLACE FUNCTION supervisor.request_cancel(p_actor text, p_run_id bigint)
RETURNS TABLE (id bigint, state text, requested boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    run record;
BEGIN
    SELECT r.id, r.state, r.cancel_requested_at INTO run FROM supervisor.job_run r WHERE r.id = p_run_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no run %', p_run_id USING ERRCODE = 'TN020';
    END IF;
    IF run.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED') THEN
        RAISE EXCEPTION 'run % has ended as %', p_run_id, run.state USING ERRCODE = 'TN021';
    END IF;
    IF run.cancel_requested_at IS NULL THEN
        UPDATE supervisor.job_run r SET cancel_requested_at = clock_timestamp() WHERE r.id = p_run_id;
        PERFORM supervisor.note_audit(p_actor, 'run.cancel', 'run:' || p_run_id,
            jsonb_build_object('state', run.state), jsonb_build_object('cancel_requested', true));
        PERFORM pg_notify('tenure', 'run');
    END IF;
    RETURN QUERY SELECT p_run_id, run.state, run.cancel_requested_at IS NULL;
END $$;

CREATE OR REPLACE FUNCTION supervisor.request_retry(p_actor text, p_run_id bigint)
RETURNS TABLE (id bigint, requested boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    run record;
BEGIN
    SELECT r.* INTO run FROM supervisor.job_run r WHERE r.id = p_run_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no run %', p_run_id USING ERRCODE = 'TN020';
    END IF;
    IF run.next_attempt_id IS NOT NULL THEN
        RAISE EXCEPTION 'run % has a newer attempt: run %', p_run_id, run.next_attempt_id USING ERRCODE = 'TN021';
    END IF;
    IF run.state NOT IN ('FAILED', 'TIMED_OUT', 'CANCELED') THEN
        RAISE EXCEPTION 'run % is %', p_run_id, run.state USING ERRCODE = 'TN021';
    END IF;
    -- FOR SHARE: the definition cannot be removed before this request is in
    PERFORM FROM supervisor.job_definition d WHERE d.id = run.job_definition_id AND d.removed_at IS NULL FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the job of run % was removed', p_run_id USING ERRCODE = 'TN021';
    END IF;
    INSERT INTO supervisor.retry_request (run_id, actor) VALUES (p_run_id, p_actor) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM supervisor.note_audit(p_actor, 'run.retry', 'run:' || p_run_id,
            jsonb_build_object('state', run.state, 'starts', run.starts, 'max_attempts', run.max_attempts), NULL);
        PERFORM pg_notify('tenure', 'run');
        RETURN QUERY SELECT p_run_id, true;
    ELSE
        RETURN QUERY SELECT p_run_id, false;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION supervisor.request_drain(p_actor text, p_worker text)
RETURNS TABLE (worker_id text, state text, requested boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    was record;
BEGIN
    SELECT w.state, w.drain_requested_at INTO was FROM supervisor.worker w WHERE w.worker_id = p_worker FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no worker %', p_worker USING ERRCODE = 'TN020';
    END IF;
    IF was.state = 'gone' THEN
        RAISE EXCEPTION 'worker % is gone', p_worker USING ERRCODE = 'TN021';
    END IF;
    IF was.drain_requested_at IS NULL THEN
        UPDATE supervisor.worker w SET drain_requested_at = clock_timestamp() WHERE w.worker_id = p_worker;
        PERFORM supervisor.note_audit(p_actor, 'worker.drain', 'worker:' || p_worker,
            jsonb_build_object('state', was.state), jsonb_build_object('drain_requested', true));
    END IF;
    RETURN QUERY SELECT p_worker, was.state, was.drain_requested_at IS NULL;
END $$;

CREATE OR REPLACE FUNCTION supervisor.request_resign(p_actor text) RETURNS TABLE (epoch bigint, holder text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    lease record;
BEGIN
    UPDATE supervisor.leader_lease l SET resign_requested_epoch = l.epoch
        WHERE l.expires_at > clock_timestamp() RETURNING l.epoch, l.holder INTO lease;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'nobody leads' USING ERRCODE = 'TN021';
    END IF;
    PERFORM supervisor.note_audit(p_actor, 'leader.resign', 'epoch:' || lease.epoch,
        jsonb_build_object('holder', lease.holder), NULL);
    PERFORM pg_notify('tenure', 'leader');
    RETURN QUERY SELECT lease.epoch, lease.holder;
END $$;

-- Fields that a specification names are set, the others keep their value (or take the default when it is new).
CREATE OR REPLACE FUNCTION supervisor.save_job(p_actor text, p_name text, p_spec jsonb, p_create boolean)
RETURNS SETOF supervisor.job_definition
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was supervisor.job_definition;
    saved supervisor.job_definition;
    wanted supervisor.job_definition;
BEGIN
    SELECT d.* INTO was FROM supervisor.job_definition d WHERE d.name = p_name AND d.removed_at IS NULL FOR UPDATE;
    IF p_create THEN
        IF was.id IS NOT NULL THEN
            RAISE EXCEPTION 'there is a job % already', p_name USING ERRCODE = 'TN021';
        END IF;
        BEGIN
            INSERT INTO supervisor.job_definition AS d (name, domain) VALUES (p_name, p_spec ->> 'domain')
                RETURNING d.* INTO saved;
        EXCEPTION WHEN unique_violation THEN
            RAISE EXCEPTION 'there is a job % already', p_name USING ERRCODE = 'TN021';
        END;
    ELSIF was.id IS NULL THEN
        RAISE EXCEPTION 'no job %', p_name USING ERRCODE = 'TN020';
    ELSE
        saved := was;
    END IF;
    wanted := jsonb_populate_record(saved, p_spec - '{id,name,created_at,updated_at,removed_at}'::text[]);
    UPDATE supervisor.job_definition d SET domain = wanted.domain, action = wanted.action, payload = wanted.payload,
        enabled = wanted.enabled, priority = wanted.priority, max_attempts = wanted.max_attempts,
        timeout_seconds = wanted.timeout_seconds, concurrency = wanted.concurrency, backoff_seconds = wanted.backoff_seconds,
        backoff_max_seconds = wanted.backoff_max_seconds, updated_at = clock_timestamp()
    WHERE d.id = saved.id RETURNING d.* INTO saved;
    PERFORM supervisor.note_audit(p_actor, CASE WHEN p_create THEN 'job.add' ELSE 'job.set' END, 'job:' || p_name,
        CASE WHEN was.id IS NOT NULL THEN to_jsonb(was) END, to_jsonb(saved));
    PERFORM pg_notify('tenure', 'run');
    RETURN NEXT saved;
END $$;

CREATE OR REPLACE FUNCTION supervisor.remove_job(p_actor text, p_name text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was  supervisor.job_definition;
    live bigint;
BEGIN
    SELECT d.* INTO was FROM supervisor.job_definition d WHERE d.name = p_name AND d.removed_at IS NULL FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no job %', p_name USING ERRCODE = 'TN020';
    END IF;
    SELECT count(*) INTO live FROM supervisor.job_run r
        LEFT JOIN supervisor.retry_request q ON q.run_id = r.id
        WHERE r.job_definition_id = was.id AND (r.state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED')
            OR (r.retry_at IS NOT NULL AND r.next_attempt_id IS NULL) OR q.run_id IS NOT NULL);
    IF live > 0 THEN
        RAISE EXCEPTION 'job % has % runs that have not ended', p_name, live USING ERRCODE = 'TN021';
    END IF;
    UPDATE supervisor.job_definition d SET removed_at = clock_timestamp(), enabled = false WHERE d.id = was.id;
    PERFORM supervisor.note_audit(p_actor, 'job.remove', 'job:' || p_name, to_jsonb(was), NULL);
    RETURN was.id;
END $$;

CREATE OR REPLACE FUNCTION supervisor.save_setting(p_actor text, p_name text, p_value jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was jsonb;
BEGIN
    SELECT s.value INTO was FROM supervisor.setting s WHERE s.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no setting %', p_name USING ERRCODE = 'TN020';
    END IF;
    UPDATE supervisor.setting s SET value = p_value, updated_at = clock_timestamp() WHERE s.name = p_name;
    PERFORM supervisor.note_audit(p_actor, 'setting.set', 'setting:' || p_name, was, p_value);
    RETURN was;
END $$;
