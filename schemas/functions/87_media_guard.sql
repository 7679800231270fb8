-- What must never happen to media, refused whoever asks: a result that does not follow from its decision, a rewritten event, a
-- blob that becomes another one; and since when a blob is used by nobody.

CREATE OR REPLACE FUNCTION media.setting(p_name text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.value FROM supervisor.setting s WHERE s.name = p_name
$$;

CREATE OR REPLACE FUNCTION media.may_end_as(p_decision public.media_write_decision, p_result public.media_write_result)
RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE p_decision
        WHEN 'INSERT' THEN p_result IN ('OK_INSERTED', 'FAILED')
        WHEN 'DUPLICATE' THEN p_result IN ('OK_RETURN_EXISTING', 'FAILED')
        WHEN 'REPLACE' THEN p_result IN ('OK_REPLACED', 'FAILED')
        WHEN 'REJECT' THEN p_result = 'REJECTED'
        WHEN 'NOOP' THEN p_result IN ('OK_RETURN_EXISTING', 'FAILED') END
$$;

CREATE OR REPLACE FUNCTION media.lock_request(p_request uuid) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_advisory_xact_lock(hashtextextended('media.request:' || p_request, 0))
$$;

-- One decision and one result a request, and the one allows the other, all by the one principal that asked. Events of a request have times that grow, whatever the
-- clock does, so that their order by time alone is the order in which they were written.
CREATE OR REPLACE FUNCTION media.guard_event() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    past record;
BEGIN
    PERFORM media.lock_request(NEW.request_id);
    SELECT max(e.created_at) AS last_at, min(e.decision) AS one, max(e.decision) AS other, max(e.result) AS result,
           max(e.principal) AS principal
      INTO past FROM public.media_write_events e WHERE e.request_id = NEW.request_id;
    past.one := least(past.one, NEW.decision);
    past.other := greatest(past.other, NEW.decision);
    past.result := coalesce(NEW.result, past.result);
    IF past.one <> past.other THEN
        RAISE EXCEPTION 'request % was decided as %, not as %', NEW.request_id, past.one, past.other
            USING ERRCODE = 'check_violation';
    END IF;
    IF past.result IS NOT NULL AND media.may_end_as(past.one, past.result) IS NOT TRUE THEN
        RAISE EXCEPTION 'request %: the decision % cannot end as %', NEW.request_id, coalesce(past.one::text, '(none)'), past.result
            USING ERRCODE = 'check_violation';
    END IF;
    NEW.principal := coalesce(past.principal, NEW.principal);
    NEW.created_at := greatest(NEW.created_at, past.last_at + interval '1 microsecond');
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER guard_new BEFORE INSERT ON public.media_write_events
    FOR EACH ROW EXECUTE FUNCTION media.guard_event();
CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON public.media_write_events
    FOR EACH ROW EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER append_only_all BEFORE TRUNCATE ON public.media_write_events
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.refuse_rewrite();

CREATE OR REPLACE FUNCTION media.guard_blob() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (NEW.file_hash, NEW.mime_type, NEW.file_size, NEW.storage_key, NEW.created_at)
       IS DISTINCT FROM (OLD.file_hash, OLD.mime_type, OLD.file_size, OLD.storage_key, OLD.created_at) THEN
        RAISE EXCEPTION 'blob %: what it is never changes', OLD.file_hash USING ERRCODE = 'TN013';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER guard BEFORE UPDATE ON public.media_blobs FOR EACH ROW EXECUTE FUNCTION media.guard_blob();

CREATE OR REPLACE FUNCTION media.guard_ref() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (NEW.id, NEW.blob_hash, NEW.created_at) IS DISTINCT FROM (OLD.id, OLD.blob_hash, OLD.created_at) THEN
        RAISE EXCEPTION 'ref %: what it refers to never changes; put another one in its place', OLD.id USING ERRCODE = 'TN013';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER guard BEFORE UPDATE ON public.media_refs FOR EACH ROW EXECUTE FUNCTION media.guard_ref();

-- The blob's row is locked first: of two who end its last two refs at once, the second sees what the first did.
CREATE OR REPLACE FUNCTION media.watch_use() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    hash  text := CASE TG_OP WHEN 'DELETE' THEN OLD.blob_hash ELSE NEW.blob_hash END;
    used  boolean;
BEGIN
    PERFORM FROM public.media_blobs b WHERE b.file_hash = hash FOR NO KEY UPDATE;
    used := EXISTS (SELECT FROM public.media_refs r WHERE r.blob_hash = hash AND r.deleted_at IS NULL);
    UPDATE public.media_blobs b SET unreferenced_since = CASE WHEN used THEN NULL ELSE clock_timestamp() END
     WHERE b.file_hash = hash AND (b.unreferenced_since IS NULL) <> used;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER watch_use AFTER INSERT OR DELETE OR UPDATE OF deleted_at ON public.media_refs
    FOR EACH ROW EXECUTE FUNCTION media.watch_use();
