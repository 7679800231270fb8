-- The ledger: items first, then events about them; nothing that was written is written over.

-- Stricter than other records: retention does not pass here either.
CREATE OR REPLACE FUNCTION logbook.refuse_rewrite() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '% on %.% is refused: it is only added to', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME USING ERRCODE = 'TN014';
END $$;
CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON logbook.events
    FOR EACH ROW EXECUTE FUNCTION logbook.refuse_rewrite();
CREATE OR REPLACE TRIGGER append_only_all BEFORE TRUNCATE ON logbook.events
    FOR EACH STATEMENT EXECUTE FUNCTION logbook.refuse_rewrite();

CREATE OR REPLACE FUNCTION logbook.add_item(p_type text, p_title text, p_status text, p_project_key text, p_meta jsonb)
RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO logbook.items AS i (item_type, title, status, project_key, meta_json)
    VALUES (p_type, coalesce(p_title, ''), coalesce(p_status, 'open'), p_project_key, coalesce(p_meta, '{}')) RETURNING i.item_id
$$;

-- The item's own status follows the event's, where the event names one.
CREATE OR REPLACE FUNCTION logbook.add_event(p_item bigint, p_type text, p_to text, p_payload jsonb) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was  text;
    made bigint;
BEGIN
    IF p_to IS NOT NULL THEN
        SELECT i.status INTO was FROM logbook.items i WHERE i.item_id = p_item FOR NO KEY UPDATE;
    ELSE
        PERFORM FROM logbook.items i WHERE i.item_id = p_item;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no item %', p_item USING ERRCODE = 'TN020';
    END IF;
    INSERT INTO logbook.events AS e (item_id, event_type, status_from, status_to, payload_json)
    VALUES (p_item, p_type, was, p_to, coalesce(p_payload, '{}')) RETURNING e.event_id INTO made;
    IF p_to IS NOT NULL THEN
        UPDATE logbook.items i SET status = p_to, updated_at = clock_timestamp() WHERE i.item_id = p_item;
    END IF;
    RETURN made;
END $$;

-- The same content attached again is the attachment that is there.
CREATE OR REPLACE FUNCTION logbook.attach(
    p_actor text, p_item bigint, p_kind text, p_uri text, p_sha256 text, p_size bigint, p_meta jsonb)
RETURNS TABLE (attachment_id bigint, evidence_uri text, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY INSERT INTO logbook.attachments AS a (item_id, kind, uri, sha256, size_bytes, meta_json)
        VALUES (p_item, p_kind, p_uri, p_sha256, p_size, coalesce(p_meta, '{}'))
        ON CONFLICT (item_id, kind, sha256) DO NOTHING RETURNING a.attachment_id, a.evidence_uri, true;
    IF NOT FOUND THEN
        RETURN QUERY SELECT a.attachment_id, a.evidence_uri, false FROM logbook.attachments a
            WHERE a.item_id = p_item AND a.kind = p_kind AND a.sha256 = p_sha256;
        RETURN;
    END IF;
    PERFORM supervisor.note_audit(p_actor, 'evidence.attach', 'item:' || p_item, NULL,
        jsonb_build_object('kind', p_kind, 'uri', p_uri, 'sha256', p_sha256));
END $$;

-- For callers that name nobody: the audit has their login.
CREATE OR REPLACE FUNCTION logbook.attach(p_item bigint, p_kind text, p_uri text, p_sha256 text, p_size bigint, p_meta jsonb)
RETURNS TABLE (attachment_id bigint, evidence_uri text, created boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM logbook.attach(supervisor.by_login(), p_item, p_kind, p_uri, p_sha256, p_size, p_meta)
$$;

-- What others are to hear of. A key that was used answers with what it made: NULL = nothing new.
CREATE OR REPLACE FUNCTION logbook.post(p_item bigint, p_target text, p_payload jsonb, p_dedupe_key text) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO logbook.outbox AS o (item_id, target, payload_json, dedupe_key)
    VALUES (p_item, p_target, coalesce(p_payload, '{}'), p_dedupe_key)
    ON CONFLICT (dedupe_key) DO NOTHING RETURNING o.outbox_id
$$;

-- Held until it is answered or the lease is over; then anybody takes it over under another token.
CREATE OR REPLACE FUNCTION logbook.claim_outbox(p_owner text, p_limit integer)
RETURNS TABLE (outbox_id bigint, lock_token uuid, item_id bigint, target text, payload_json jsonb, retry_count integer)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH due AS MATERIALIZED (
        SELECT o.outbox_id FROM logbook.outbox o
         WHERE o.status = 'pending' AND o.next_attempt_at <= clock_timestamp()
           AND (o.locked_at IS NULL OR o.locked_at <= clock_timestamp() - make_interval(secs => (SELECT s.value::double precision
                FROM supervisor.setting s WHERE s.name = 'logbook_outbox_lease_seconds')))
         ORDER BY o.next_attempt_at, o.outbox_id LIMIT p_limit FOR UPDATE SKIP LOCKED
    )
    UPDATE logbook.outbox o SET locked_by = p_owner, locked_at = clock_timestamp(), lock_token = gen_random_uuid(),
           updated_at = clock_timestamp()
     WHERE o.outbox_id = ANY (ARRAY(SELECT d.outbox_id FROM due d))
    RETURNING o.outbox_id, o.lock_token, o.item_id, o.target, o.payload_json, o.retry_count
$$;

-- p_error NULL = delivered. False: somebody else has it by now.
CREATE OR REPLACE FUNCTION logbook.finish_outbox(p_outbox bigint, p_token uuid, p_error text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most integer := (SELECT s.value::integer FROM supervisor.setting s WHERE s.name = 'logbook_outbox_retries');
BEGIN
    UPDATE logbook.outbox o SET
        status = CASE WHEN p_error IS NULL THEN 'sent' WHEN o.retry_count >= most THEN 'dead' ELSE 'pending' END,
        retry_count = o.retry_count + (p_error IS NOT NULL)::integer, last_error = p_error,
        next_attempt_at = clock_timestamp() + make_interval(secs => least(3600, 2.0 ^ least(o.retry_count, 12))),
        locked_by = NULL, locked_at = NULL, lock_token = NULL, updated_at = clock_timestamp()
     WHERE o.outbox_id = p_outbox AND o.lock_token = p_token AND o.status = 'pending';
    RETURN FOUND;
END $$;
