-- What must never happen to captured schedules, refused whoever asks; and the few writes that are not a worker's.

CREATE OR REPLACE FUNCTION schedule_ingest.lease_timeout() RETURNS interval
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT make_interval(secs => (SELECT s.value::double precision FROM supervisor.setting s WHERE s.name = 'capture_lease_seconds'))
$$;

-- A heartbeat keeps owner and token; whatever changes one of them takes the session over, and only a stale one can be taken.
-- A session that its worker gives back, owner, time and token at once, stays in processing, as there is no way back to pending: its
-- lease is made stale instead.
CREATE OR REPLACE FUNCTION schedule_ingest.guard_session() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_stale boolean;
BEGIN
    IF (NEW.id, NEW.user_id, NEW.created_at) IS DISTINCT FROM (OLD.id, OLD.user_id, OLD.created_at) THEN
        RAISE EXCEPTION 'session %: what it is never changes', OLD.id USING ERRCODE = 'TN013';
    END IF;
    IF OLD.state IN ('done', 'failed') AND (NEW.state, NEW.error, NEW.claim_id) IS DISTINCT FROM (OLD.state, OLD.error, OLD.claim_id) THEN
        RAISE EXCEPTION 'session % is %: it never changes again', OLD.id, OLD.state USING ERRCODE = 'TN010';
    END IF;
    IF NOT (NEW.state = OLD.state
            OR (OLD.state = 'pending' AND NEW.state IN ('processing', 'failed'))
            OR (OLD.state = 'processing' AND NEW.state IN ('done', 'failed'))) THEN
        RAISE EXCEPTION 'session %: % -> % is not a move', OLD.id, OLD.state, NEW.state USING ERRCODE = 'TN011';
    END IF;
    IF OLD.state = 'processing' AND NEW.state = 'processing' THEN
        IF NEW.locked_by IS NULL AND NEW.locked_at IS NULL AND NEW.claim_id IS NULL THEN
            NEW.locked_by := OLD.locked_by;
            NEW.locked_at := to_timestamp(0);
            RETURN NEW;
        END IF;
        is_stale := OLD.locked_at <= now() - schedule_ingest.lease_timeout();
        IF NOT is_stale AND (NEW.locked_by, NEW.claim_id) IS DISTINCT FROM (OLD.locked_by, OLD.claim_id) THEN
            RAISE EXCEPTION 'session % is being read by %, last heard of at %', OLD.id, OLD.locked_by, OLD.locked_at
                USING ERRCODE = 'TN012';
        END IF;
        IF NEW.locked_at < OLD.locked_at THEN
            RAISE EXCEPTION 'session %: a heartbeat is never earlier than the last one', OLD.id USING ERRCODE = 'TN013';
        END IF;
    END IF;
    IF NEW.state = 'failed' AND OLD.state <> 'failed'
       AND EXISTS (SELECT FROM schedule_ingest.schedule_version v WHERE v.session_id = OLD.id) THEN
        RAISE EXCEPTION 'session % has made a version: it has not failed', OLD.id USING ERRCODE = 'TN011';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER guard BEFORE UPDATE ON schedule_ingest.capture_session
    FOR EACH ROW EXECUTE FUNCTION schedule_ingest.guard_session();
CREATE OR REPLACE TRIGGER kept BEFORE DELETE ON schedule_ingest.capture_session
    FOR EACH ROW EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER kept_all BEFORE TRUNCATE ON schedule_ingest.capture_session
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.refuse_rewrite();

CREATE OR REPLACE FUNCTION schedule_ingest.give_back(p_session uuid, p_claim uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE schedule_ingest.capture_session s SET locked_by = NULL, locked_at = NULL, claim_id = NULL
     WHERE s.id = p_session AND s.claim_id = p_claim AND s.state = 'processing';
    IF FOUND THEN
        PERFORM pg_notify('tenure', 'lease:schedule_ingest.capture_session');
    END IF;
END $$;

-- The session's row is locked: whoever claims it has all its images, or the image comes too late.
CREATE OR REPLACE FUNCTION schedule_ingest.guard_image() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found schedule_ingest.capture_session_state;
BEGIN
    SELECT s.state INTO found FROM schedule_ingest.capture_session s WHERE s.id = NEW.session_id FOR SHARE OF s;
    IF found <> 'pending' THEN
        RAISE EXCEPTION 'session % is % and takes no more images', NEW.session_id, found USING ERRCODE = 'TN021';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER guard_new BEFORE INSERT ON schedule_ingest.capture_image
    FOR EACH ROW EXECUTE FUNCTION schedule_ingest.guard_image();
CREATE OR REPLACE TRIGGER immutable BEFORE UPDATE OR DELETE ON schedule_ingest.capture_image
    FOR EACH ROW EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER immutable_all BEFORE TRUNCATE ON schedule_ingest.capture_image
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.refuse_rewrite();

-- Runs as whoever inserts: a worker writes the version of a session that its claim has just ended, in one statement, so that
-- one whose claim was taken writes none. A version that is not named is the next one; those who come together wait in line.
CREATE OR REPLACE FUNCTION schedule_ingest.guard_version() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    session schedule_ingest.capture_session;
    next    integer;
BEGIN
    SELECT * INTO session FROM schedule_ingest.capture_session s WHERE s.id = NEW.session_id;
    IF session.user_id <> NEW.user_id THEN
        RAISE EXCEPTION 'session % is of user %, not %', NEW.session_id, session.user_id, NEW.user_id USING ERRCODE = 'TN013';
    END IF;
    IF session.state IN ('pending', 'failed')
       OR (session.state = 'processing' AND NOT pg_has_role(current_user, 'tenure_owner', 'USAGE')) THEN
        RAISE EXCEPTION 'session % is %: it makes no version', NEW.session_id, session.state USING ERRCODE = 'TN011';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(format('schedule_ingest.day:%s:%s', NEW.user_id, NEW.schedule_date), 0));
    SELECT coalesce(max(v.version), 0) + 1 INTO next FROM schedule_ingest.schedule_version v
     WHERE v.user_id = NEW.user_id AND v.schedule_date = NEW.schedule_date;
    NEW.version := coalesce(NEW.version, next);
    IF NEW.version <> next THEN
        RAISE EXCEPTION 'the next version of % for user % is %, not %', NEW.schedule_date, NEW.user_id, next, NEW.version
            USING ERRCODE = 'TN015';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER guard_new BEFORE INSERT ON schedule_ingest.schedule_version
    FOR EACH ROW EXECUTE FUNCTION schedule_ingest.guard_version();
CREATE OR REPLACE TRIGGER immutable BEFORE UPDATE OR DELETE ON schedule_ingest.schedule_version
    FOR EACH ROW EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER immutable_all BEFORE TRUNCATE ON schedule_ingest.schedule_version
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.refuse_rewrite();

CREATE OR REPLACE FUNCTION schedule_ingest.point_to_newest() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO schedule_ingest.day_schedule AS d (user_id, schedule_date, current_version)
    VALUES (NEW.user_id, NEW.schedule_date, NEW.version)
    ON CONFLICT (user_id, schedule_date) DO UPDATE SET current_version = EXCLUDED.current_version;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER point_to_newest AFTER INSERT ON schedule_ingest.schedule_version
    FOR EACH ROW EXECUTE FUNCTION schedule_ingest.point_to_newest();

CREATE OR REPLACE FUNCTION schedule_ingest.guard_day() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    newest integer;
BEGIN
    IF TG_OP = 'UPDATE' AND (NEW.user_id, NEW.schedule_date) IS DISTINCT FROM (OLD.user_id, OLD.schedule_date) THEN
        RAISE EXCEPTION 'a day stays the day it is' USING ERRCODE = 'TN013';
    END IF;
    SELECT max(v.version) INTO newest FROM schedule_ingest.schedule_version v
     WHERE v.user_id = NEW.user_id AND v.schedule_date = NEW.schedule_date;
    IF NEW.current_version IS DISTINCT FROM newest THEN
        RAISE EXCEPTION 'the newest version of % for user % is %, not %', NEW.schedule_date, NEW.user_id,
            coalesce(newest::text, '(none)'), NEW.current_version USING ERRCODE = 'TN015';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER guard BEFORE INSERT OR UPDATE ON schedule_ingest.day_schedule
    FOR EACH ROW EXECUTE FUNCTION schedule_ingest.guard_day();
CREATE OR REPLACE TRIGGER kept BEFORE DELETE ON schedule_ingest.day_schedule
    FOR EACH ROW EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER kept_all BEFORE TRUNCATE ON schedule_ingest.day_schedule
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.refuse_rewrite();

-- A session with its images at once, asked for by p_actor: [{"r2_key", "sha256", "size_bytes", "telegram_message_id"}, ...] in their order. Asked again
-- with the same id it is the same session, if it is the same images (by what is in them: their keys are new with each upload).
CREATE OR REPLACE FUNCTION schedule_ingest.submit(p_actor text, p_session uuid, p_user bigint, p_images jsonb)
RETURNS TABLE (session_id uuid, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    most  integer := (SELECT s.value::integer FROM supervisor.setting s WHERE s.name = 'capture_max_images');
    known schedule_ingest.capture_session;
BEGIN
    IF jsonb_typeof(p_images) IS DISTINCT FROM 'array' OR jsonb_array_length(p_images) = 0 THEN
        RAISE EXCEPTION 'a session has one picture or more' USING ERRCODE = 'TN022';
    END IF;
    IF jsonb_array_length(p_images) > most THEN
        RAISE EXCEPTION 'a session has at most % pictures (setting capture_max_images), not %', most, jsonb_array_length(p_images)
            USING ERRCODE = 'TN022';
    END IF;
    INSERT INTO schedule_ingest.capture_session (id, user_id) VALUES (p_session, p_user) ON CONFLICT (id) DO NOTHING;
    created := FOUND;
    IF created THEN
        INSERT INTO schedule_ingest.capture_image (session_id, sequence, r2_key, sha256, size_bytes, telegram_message_id)
        SELECT p_session, i.position, i.image->>'r2_key', i.image->>'sha256', (i.image->>'size_bytes')::bigint,
               (i.image->>'telegram_message_id')::bigint
          FROM jsonb_array_elements(p_images) WITH ORDINALITY AS i (image, position);
        PERFORM supervisor.note_audit(p_actor, 'capture.submit', 'capture:' || p_session, NULL,
            jsonb_build_object('user', p_user, 'images', jsonb_array_length(p_images)));
        PERFORM pg_notify('tenure', 'lease:schedule_ingest.capture_session');
    ELSE
        SELECT * INTO known FROM schedule_ingest.capture_session s WHERE s.id = p_session;
        IF known.user_id <> p_user OR
           (SELECT jsonb_agg(i.sha256 ORDER BY i.sequence) FROM schedule_ingest.capture_image i WHERE i.session_id = p_session)
           IS DISTINCT FROM (SELECT jsonb_agg(i.image->>'sha256' ORDER BY i.position)
                               FROM jsonb_array_elements(p_images) WITH ORDINALITY AS i (image, position)) THEN
            RAISE EXCEPTION 'session % is there already, with other pictures or for another user', p_session USING ERRCODE = 'TN021';
        END IF;
    END IF;
    RETURN QUERY SELECT p_session, created;
END $$;

-- For callers that name nobody: the audit has their login.
CREATE OR REPLACE FUNCTION schedule_ingest.submit(p_session uuid, p_user bigint, p_images jsonb)
RETURNS TABLE (session_id uuid, created boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM schedule_ingest.submit(supervisor.by_login(), p_session, p_user, p_images)
$$;

-- An operator's word that a session is not to be read. One that is being read ends by its worker only.
CREATE OR REPLACE FUNCTION schedule_ingest.refuse_session(p_actor text, p_session uuid, p_reason text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    session schedule_ingest.capture_session;
BEGIN
    SELECT * INTO session FROM schedule_ingest.capture_session s WHERE s.id = p_session FOR UPDATE OF s;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no capture session %', p_session USING ERRCODE = 'TN020', DETAIL = 'capture';
    END IF;
    IF session.state <> 'pending' THEN
        RAISE EXCEPTION 'session % is % and no longer waits', p_session, session.state USING ERRCODE = 'TN021';
    END IF;
    IF btrim(coalesce(p_reason, '')) = '' THEN
        RAISE EXCEPTION 'say why the session is not to be read' USING ERRCODE = 'TN022';
    END IF;
    UPDATE schedule_ingest.capture_session s SET state = 'failed', error = p_reason WHERE s.id = p_session;
    PERFORM supervisor.note_audit(p_actor, 'capture.refuse', 'capture:' || p_session, jsonb_build_object('state', session.state),
        jsonb_build_object('state', 'failed', 'error', p_reason));
END $$;
