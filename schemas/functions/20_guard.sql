-- What must never happen to a run, refused whoever asks.

CREATE OR REPLACE FUNCTION supervisor.guard_run() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF OLD.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED') THEN
        -- ended: only three facts may be added, each once
        IF (OLD.executor_stopped_at IS NOT NULL AND NEW.executor_stopped_at IS DISTINCT FROM OLD.executor_stopped_at)
           OR (OLD.next_attempt_id IS NOT NULL AND NEW.next_attempt_id IS DISTINCT FROM OLD.next_attempt_id)
           OR (OLD.log_ref IS NOT NULL AND NEW.log_ref IS DISTINCT FROM OLD.log_ref) THEN
            RAISE EXCEPTION 'run % has ended: that fact is already written', OLD.id USING ERRCODE = 'TN010';
        END IF;
        OLD.executor_stopped_at := NEW.executor_stopped_at;
        OLD.next_attempt_id := NEW.next_attempt_id;
        OLD.log_ref := NEW.log_ref;
        IF NEW IS DISTINCT FROM OLD THEN
            RAISE EXCEPTION 'run % has ended as %: it never changes again', OLD.id, OLD.state USING ERRCODE = 'TN010';
        END IF;
        RETURN NEW;
    END IF;

    IF NEW.state <> OLD.state AND (OLD.state || '>' || NEW.state) NOT IN (
        'PENDING>ASSIGNED', 'ASSIGNED>RUNNING', 'ASSIGNED>CANCELED', 'ASSIGNED>ORPHANED', 'ORPHANED>ASSIGNED',
        'RUNNING>SUCCEEDED', 'RUNNING>FAILED', 'RUNNING>TIMED_OUT', 'RUNNING>CANCELED') THEN
        RAISE EXCEPTION 'run %: % -> % is not a move', OLD.id, OLD.state, NEW.state USING ERRCODE = 'TN011';
    END IF;

    IF NEW.version <> OLD.version
        + (NEW.state <> OLD.state OR NEW.continuation_state <> OLD.continuation_state)::integer THEN
        RAISE EXCEPTION 'run %: version % -> % does not count this change', OLD.id, OLD.version, NEW.version
            USING ERRCODE = 'TN012';
    END IF;

    IF NEW.id <> OLD.id OR NEW.root_id <> OLD.root_id OR NEW.job_definition_id <> OLD.job_definition_id
       OR NEW.domain <> OLD.domain OR NEW.max_attempts <> OLD.max_attempts OR NEW.created_at <> OLD.created_at
       OR NEW.priority <> OLD.priority
       OR NEW.action IS DISTINCT FROM OLD.action OR NEW.payload IS DISTINCT FROM OLD.payload
       OR NEW.idempotency_key IS DISTINCT FROM OLD.idempotency_key
       OR NEW.scheduled_for IS DISTINCT FROM OLD.scheduled_for
       OR NEW.retry_of_id IS DISTINCT FROM OLD.retry_of_id
       OR (OLD.cancel_requested_at IS NOT NULL AND NEW.cancel_requested_at IS DISTINCT FROM OLD.cancel_requested_at)
    THEN
        RAISE EXCEPTION 'run %: what it is never changes', OLD.id USING ERRCODE = 'TN013';
    END IF;

    -- the token of an attempt: stamped by its own move, never again
    IF (NEW.claim_id IS DISTINCT FROM OLD.claim_id OR NEW.assigned_epoch IS DISTINCT FROM OLD.assigned_epoch
        OR NEW.assigned_worker_id IS DISTINCT FROM OLD.assigned_worker_id)
       AND NOT (NEW.state <> OLD.state AND NEW.state IN ('ASSIGNED', 'ORPHANED')) THEN
        RAISE EXCEPTION 'run %: a claim changes only with an assignment', OLD.id USING ERRCODE = 'TN013';
    END IF;
    IF (NEW.leader_epoch IS DISTINCT FROM OLD.leader_epoch OR NEW.started_at IS DISTINCT FROM OLD.started_at)
       AND NOT (OLD.state = 'ASSIGNED' AND NEW.state = 'RUNNING') THEN
        RAISE EXCEPTION 'run %: the epoch of an attempt is stamped at its start only', OLD.id USING ERRCODE = 'TN013';
    END IF;
    IF NEW.attempt <> OLD.attempt + (OLD.state = 'ORPHANED' AND NEW.state = 'ASSIGNED')::integer
       OR NEW.starts <> OLD.starts + (OLD.state = 'ASSIGNED' AND NEW.state = 'RUNNING')::integer THEN
        RAISE EXCEPTION 'run %: attempts and starts only count assignments and starts', OLD.id
            USING ERRCODE = 'TN013';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER guard BEFORE UPDATE ON supervisor.job_run
    FOR EACH ROW EXECUTE FUNCTION supervisor.guard_run();

-- A run begins at the beginning.
CREATE OR REPLACE FUNCTION supervisor.guard_new_run() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'a run begins as PENDING, version 1' USING ERRCODE = 'TN011';
END $$;

CREATE OR REPLACE TRIGGER guard_new BEFORE INSERT ON supervisor.job_run
    FOR EACH ROW WHEN (NEW.state <> 'PENDING' OR NEW.version <> 1 OR NEW.continuation_state <> 'NONE')
    EXECUTE FUNCTION supervisor.guard_new_run();

-- History: one statement a statement, and only where the version changed.
CREATE OR REPLACE FUNCTION supervisor.record_created() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO supervisor.job_run_history (run_id, root_id, version, from_state, to_state, continuation_state,
        attempt, worker_id, leader_epoch, claim_id, actor, reason)
    SELECT n.id, n.root_id, n.version, NULL, n.state, n.continuation_state, n.attempt, NULL,
        nullif(current_setting('tenure.epoch', true), '')::bigint, NULL,
        coalesce(nullif(current_setting('tenure.actor', true), ''), session_user),
        nullif(current_setting('tenure.reason', true), '')
    FROM created n;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER record_created AFTER INSERT ON supervisor.job_run
    REFERENCING NEW TABLE AS created FOR EACH STATEMENT EXECUTE FUNCTION supervisor.record_created();

-- The callers switch hash joins off for their own statements; here a nested loop would be quadratic, and the plan of a
-- connection's first move, mostly of a single run, is kept for all that follow.
CREATE OR REPLACE FUNCTION supervisor.record_moved() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_hashjoin = on SET enable_nestloop = off AS $$
BEGIN
    INSERT INTO supervisor.job_run_history (run_id, root_id, version, from_state, to_state, continuation_state,
        attempt, worker_id, leader_epoch, claim_id, actor, reason)
    SELECT n.id, n.root_id, n.version, o.state, n.state, n.continuation_state, n.attempt,
        coalesce(n.assigned_worker_id, o.assigned_worker_id),
        coalesce(nullif(current_setting('tenure.epoch', true), '')::bigint, n.leader_epoch, n.assigned_epoch),
        coalesce(n.claim_id, o.claim_id),
        coalesce(nullif(current_setting('tenure.actor', true), ''), session_user),
        coalesce(nullif(current_setting('tenure.reason', true), ''), n.error_code)
    FROM moved_to n JOIN moved_from o ON o.id = n.id
    WHERE n.version <> o.version;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER record_moved AFTER UPDATE ON supervisor.job_run
    REFERENCING OLD TABLE AS moved_from NEW TABLE AS moved_to
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.record_moved();

-- Records that are only added to. Retention alone removes, and says so in its own transaction.
CREATE OR REPLACE FUNCTION supervisor.refuse_rewrite() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('tenure.retention', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% on %.% is refused: it is only added to', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'TN014';
END $$;

CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON supervisor.job_run_history
    FOR EACH ROW EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER append_only_all BEFORE TRUNCATE ON supervisor.job_run_history
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER append_only_all BEFORE TRUNCATE ON supervisor.job_run_history_default
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON supervisor.tenure_log
    FOR EACH ROW EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER append_only_all BEFORE TRUNCATE ON supervisor.tenure_log
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON supervisor.audit
    FOR EACH ROW EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER append_only_all BEFORE TRUNCATE ON supervisor.audit
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER never_deleted BEFORE DELETE ON supervisor.job_run
    FOR EACH ROW EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER never_truncated BEFORE TRUNCATE ON supervisor.job_run
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.refuse_rewrite();

-- The epoch only grows, and its row never goes.
CREATE OR REPLACE FUNCTION supervisor.guard_epoch() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP <> 'UPDATE' OR NEW.epoch <= OLD.epoch OR NEW.first_epoch < OLD.first_epoch THEN
        RAISE EXCEPTION 'the epoch only grows' USING ERRCODE = 'TN015';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER guard BEFORE UPDATE OR DELETE ON supervisor.leader_epoch
    FOR EACH ROW EXECUTE FUNCTION supervisor.guard_epoch();
CREATE OR REPLACE TRIGGER guard_all BEFORE TRUNCATE ON supervisor.leader_epoch
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.guard_epoch();

-- A definition that runs point to stays (removing one only marks it).
CREATE OR REPLACE FUNCTION supervisor.guard_definition() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM supervisor.job_run r WHERE r.job_definition_id = OLD.id) THEN
        RAISE EXCEPTION 'job % has runs', OLD.name USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN OLD;
END $$;

CREATE OR REPLACE TRIGGER guard BEFORE DELETE ON supervisor.job_definition
    FOR EACH ROW EXECUTE FUNCTION supervisor.guard_definition();
