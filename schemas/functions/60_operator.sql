-- What people and applications ask for. Each request leaves an audit row in the same transaction.

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
    run  record;
    kept boolean;
BEGIN
    -- the definition before the run, as everywhere; FOR SHARE: it is not removed before this request is in
    PERFORM FROM supervisor.job_definition d
        WHERE d.id = (SELECT r.job_definition_id FROM supervisor.job_run r WHERE r.id = p_run_id)
          AND d.removed_at IS NULL FOR SHARE;
    kept := FOUND;
    SELECT r.* INTO run FROM supervisor.job_run r WHERE r.id = p_run_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no run %', p_run_id USING ERRCODE = 'TN020';
    END IF;
    IF NOT kept THEN
        RAISE EXCEPTION 'the job of run % was removed', p_run_id USING ERRCODE = 'TN021';
    END IF;
    IF run.next_attempt_id IS NOT NULL THEN
        RAISE EXCEPTION 'run % has a newer attempt: run %', p_run_id, run.next_attempt_id USING ERRCODE = 'TN021';
    END IF;
    IF run.state NOT IN ('FAILED', 'TIMED_OUT', 'CANCELED') THEN
        RAISE EXCEPTION 'run % is %', p_run_id, run.state USING ERRCODE = 'TN021';
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

-- Whoever may only operate neither saves nor removes a definition that names a program. What no code has declared could.
CREATE OR REPLACE FUNCTION supervisor.refuse_program(p_job supervisor.job_definition) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names_program boolean := (supervisor.task_type_of(p_job.domain, p_job.action)).names_program;
BEGIN
    IF names_program IS NOT false THEN
        RAISE EXCEPTION 'only role admin may save or remove job %: %', p_job.name, CASE WHEN names_program
            THEN 'it names a program' ELSE format('no code has declared what %s runs', p_job.domain) END
            USING ERRCODE = 'TN024';
    END IF;
END $$;

-- Fields that a specification names are set, the others keep their value (or take the default when it is new).
CREATE OR REPLACE FUNCTION supervisor.save_job(
    p_actor text, p_name text, p_spec jsonb, p_create boolean, p_programs boolean)
RETURNS SETOF supervisor.job_definition
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was supervisor.job_definition;
    saved supervisor.job_definition;
    wanted supervisor.job_definition;
    renewed boolean;
    fault text;
BEGIN
    SELECT d.* INTO was FROM supervisor.job_definition d WHERE d.name = p_name AND d.removed_at IS NULL FOR UPDATE;
    IF p_create THEN
        IF was.id IS NOT NULL THEN
            RAISE EXCEPTION 'there is a job % already', p_name USING ERRCODE = 'TN021';
        END IF;
        -- a browser shortens the path of such a job's page to that of another one
        IF p_name ~ '/\.{1,2}(/|$)' THEN
            RAISE EXCEPTION 'no part of a job''s name is . or ..' USING ERRCODE = 'TN022';
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
    wanted := jsonb_populate_record(saved, p_spec
        - '{id,name,created_at,updated_at,removed_at,fired_until,next_fire_at,schedule_error,takes}'::text[]);
    IF NOT p_programs AND p_spec - 'enabled' <> '{}' THEN
        IF NOT p_create THEN
            PERFORM supervisor.refuse_program(saved);
        END IF;
        PERFORM supervisor.refuse_program(wanted);
    END IF;
    IF p_create OR p_spec ?| '{domain,action,payload,parameters,cron,event_type}' THEN
        fault := supervisor.definition_fault(wanted);
        IF fault IS NOT NULL THEN
            RAISE EXCEPTION '%', fault USING ERRCODE = 'TN022';
        END IF;
    END IF;
    -- what an old definition took was taken by its old task
    wanted.takes := CASE WHEN (wanted.domain, wanted.action) IS NOT DISTINCT FROM (saved.domain, saved.action)
        THEN saved.takes ELSE '{}' END;
    wanted.takes := supervisor.parameters_of(wanted);
    renewed := (saved.cron, saved.timezone, saved.enabled) IS DISTINCT FROM (wanted.cron, wanted.timezone, wanted.enabled);
    UPDATE supervisor.job_definition d SET domain = wanted.domain, action = wanted.action, payload = wanted.payload,
        parameters = wanted.parameters, takes = wanted.takes,
        enabled = wanted.enabled, priority = wanted.priority, max_attempts = wanted.max_attempts,
        timeout_seconds = wanted.timeout_seconds, concurrency = wanted.concurrency, backoff_seconds = wanted.backoff_seconds,
        backoff_max_seconds = wanted.backoff_max_seconds, cron = wanted.cron, timezone = wanted.timezone,
        missed = wanted.missed, missed_limit = wanted.missed_limit, event_type = wanted.event_type,
        concurrency_policy = wanted.concurrency_policy, updated_at = clock_timestamp(),
        -- a new schedule, or one that was switched on again, begins now: the past is not made up for
        fired_until = CASE WHEN renewed THEN greatest(d.fired_until, clock_timestamp()) ELSE d.fired_until END,
        next_fire_at = CASE WHEN renewed THEN '-infinity' ELSE d.next_fire_at END,
        schedule_error = CASE WHEN renewed THEN NULL ELSE d.schedule_error END
    WHERE d.id = saved.id RETURNING d.* INTO saved;
    PERFORM supervisor.note_audit(p_actor, CASE WHEN p_create THEN 'job.add' ELSE 'job.set' END, 'job:' || p_name,
        CASE WHEN was.id IS NOT NULL THEN to_jsonb(was) END, to_jsonb(saved));
    PERFORM pg_notify('tenure', 'run');
    RETURN NEXT saved;
END $$;

CREATE OR REPLACE FUNCTION supervisor.save_job(p_actor text, p_name text, p_spec jsonb, p_create boolean)
RETURNS SETOF supervisor.job_definition
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM supervisor.save_job(p_actor, p_name, p_spec, p_create, true)
$$;

CREATE OR REPLACE FUNCTION supervisor.remove_job(p_actor text, p_name text, p_programs boolean) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was  supervisor.job_definition;
    live bigint;
BEGIN
    SELECT d.* INTO was FROM supervisor.job_definition d WHERE d.name = p_name AND d.removed_at IS NULL FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no job %', p_name USING ERRCODE = 'TN020';
    END IF;
    IF NOT p_programs THEN
        PERFORM supervisor.refuse_program(was);
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

CREATE OR REPLACE FUNCTION supervisor.remove_job(p_actor text, p_name text) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT supervisor.remove_job(p_actor, p_name, true)
$$;

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

CREATE OR REPLACE FUNCTION supervisor.pause_domain(p_actor text, p_domain text, p_paused boolean) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_paused THEN
        INSERT INTO supervisor.domain_pause (domain, actor) VALUES (p_domain, p_actor) ON CONFLICT DO NOTHING;
    ELSE
        DELETE FROM supervisor.domain_pause p WHERE p.domain = p_domain;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM supervisor.note_audit(p_actor, CASE WHEN p_paused THEN 'domain.pause' ELSE 'domain.resume' END,
        'domain:' || p_domain, jsonb_build_object('paused', NOT p_paused), jsonb_build_object('paused', p_paused));
    PERFORM pg_notify('tenure', 'run');
    RETURN true;
END $$;

-- A person's own trigger and event: as the application's, and audited.
CREATE OR REPLACE FUNCTION supervisor.trigger_job(
    p_actor text, p_job text, p_payload jsonb, p_key text, p_not_before timestamptz, p_priority integer)
RETURNS TABLE (id bigint, state text, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    made record;
BEGIN
    SELECT e.id, e.state, e.created INTO made
        FROM supervisor.enqueue(p_job, p_payload, p_key, p_not_before, p_priority) e;
    PERFORM supervisor.note_audit(p_actor, 'job.trigger', 'job:' || p_job, NULL, to_jsonb(made));
    RETURN QUERY SELECT made.id, made.state, made.created;
END $$;

CREATE OR REPLACE FUNCTION supervisor.post_event(p_actor text, p_type text, p_payload jsonb, p_dedupe_key text)
RETURNS TABLE (id bigint, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    made record;
BEGIN
    SELECT e.id, e.created INTO made FROM supervisor.emit(p_type, p_payload, p_dedupe_key) e;
    PERFORM supervisor.note_audit(p_actor, 'event.emit', 'event:' || made.id, NULL,
        to_jsonb(made) || jsonb_build_object('type', p_type));
    RETURN QUERY SELECT made.id, made.created;
END $$;
