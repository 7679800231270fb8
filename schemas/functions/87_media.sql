-- The one way to write media. A request is decided, carried out and written down in one transaction; asked again under its id it
-- is answered from what was written down. Locks in one order: request, slots, contents, refs and blobs.
-- p_principal is who writes, as they authenticated; p_actor is on whose behalf they say they do, and grants nothing by itself.

-- as the release before had them
DROP FUNCTION IF EXISTS
    media.forbidden(media.slot, text, boolean),
    media.complaint(media.slot, text, boolean, text, bigint),
    media.plan_attach(text, text, boolean, media.slot, bigint, jsonb, text),
    media.plan_move(text, boolean, bigint, media.slot, text),
    media.plan_detach(text, boolean, bigint),
    media.perform(uuid, text, text, boolean, media.slot, bigint, jsonb, text, bigint, text);

-- The principal stands in the first event of a request; the guard of the events takes it over into the others.
CREATE OR REPLACE FUNCTION media.note_request(
    p_request uuid, p_actor text, p_principal text, p_slot media.slot, p_hash text, p_ref bigint, p_payload jsonb)
RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO public.media_write_events (request_id, event_type, actor, principal, workspace_id, entity_type, entity_id, role,
        position, blob_hash, ref_id, payload)
    VALUES (p_request, 'WRITE_REQUEST', p_actor, p_principal, p_slot.workspace_id, p_slot.entity_type, p_slot.entity_id, p_slot.role,
        p_slot.position, p_hash, p_ref, p_payload)
$$;

CREATE OR REPLACE FUNCTION media.note(
    p_request uuid, p_type public.media_write_event_type, p_actor text, p_slot media.slot, p_hash text, p_ref bigint,
    p_decision public.media_write_decision, p_result public.media_write_result, p_code text, p_message text, p_payload jsonb)
RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO public.media_write_events (request_id, event_type, actor, workspace_id, entity_type, entity_id, role, position,
        blob_hash, ref_id, decision, result, error_code, error_message, payload)
    VALUES (p_request, p_type, p_actor, p_slot.workspace_id, p_slot.entity_type, p_slot.entity_id, p_slot.role, p_slot.position,
        p_hash, p_ref, p_decision, p_result, p_code, p_message, coalesce(p_payload, '{}'))
$$;

CREATE OR REPLACE FUNCTION media.note_write(
    p_request uuid, p_actor text, p_action text, p_table text, p_slot media.slot, p_hash text, p_ref bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT media.note(p_request, 'WRITE_DB', p_actor, p_slot, p_hash, p_ref, NULL, NULL, NULL, NULL, jsonb_build_object(
        'action', p_action, 'target_table', p_table, 'blob_hash', p_hash, 'ref_id', p_ref, 'slot', to_jsonb(p_slot)))
$$;

CREATE OR REPLACE FUNCTION media.slot_of(p_ref public.media_refs) RETURNS media.slot
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ROW(p_ref.workspace_id, p_ref.entity_type, p_ref.entity_id, p_ref.role, p_ref.position)::media.slot
$$;

-- In the order of their keys, whatever the order they are named in: two swaps of the same slots do not wait for each other.
CREATE OR REPLACE FUNCTION media.lock_slots(VARIADIC p_slots media.slot[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    key bigint;
BEGIN
    FOR key IN SELECT DISTINCT hashtextextended('media.slot:' || to_jsonb(s)::text, 0) FROM unnest(p_slots) AS s ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(key);
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION media.active_in(p_slot media.slot) RETURNS public.media_refs
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.* FROM public.media_refs r
     WHERE r.workspace_id = p_slot.workspace_id AND r.entity_type = p_slot.entity_type AND r.entity_id = p_slot.entity_id
       AND r.role = p_slot.role AND r.position = p_slot.position AND r.deleted_at IS NULL
       FOR UPDATE
$$;

-- Business rules: code and message of the first that forbids it, or NULL.
-- Of the writers of a workspace, tokens are who may write to it, besides role admin; the others are names, and where there are
-- some, nobody writes on behalf of another name. Without a principal a replica of the release before asks, and its rule holds.
CREATE OR REPLACE FUNCTION media.forbidden(p_slot media.slot, p_actor text, p_principal text, p_is_admin boolean) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    writers text[] := ARRAY(SELECT w.actor FROM media.workspace_writers w WHERE w.workspace_id = p_slot.workspace_id);
    names   text[] := ARRAY(SELECT w.actor FROM unnest(writers) AS w (actor) WHERE NOT starts_with(w.actor, 'token:'));
    by_whom text := coalesce(p_principal, p_actor);
BEGIN
    IF writers = '{}' THEN
        RETURN NULL;
    END IF;
    IF by_whom <> ALL (writers) AND NOT p_is_admin THEN
        RETURN ARRAY['NOT_PERMITTED', format('%s may not write to workspace %s: `tenure media rules` shows who may, besides role '
            'admin', by_whom, p_slot.workspace_id)];
    END IF;
    IF p_actor <> by_whom AND names <> '{}' AND p_actor <> ALL (names) THEN
        RETURN ARRAY['NOT_PERMITTED', format('%s may not write to workspace %s on behalf of %s: `tenure media rules` shows on whose '
            'behalf it may', by_whom, p_slot.workspace_id, p_actor)];
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION media.complaint(
    p_slot media.slot, p_actor text, p_principal text, p_is_admin boolean, p_mime_type text, p_size bigint) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rule media.role_rules;
    most bigint;
    why  text[] := media.forbidden(p_slot, p_actor, p_principal, p_is_admin);
BEGIN
    IF why IS NOT NULL THEN
        RETURN why;
    END IF;
    SELECT r.* INTO rule FROM media.role_rules r WHERE r.role = p_slot.role;
    IF NOT FOUND THEN
        RETURN ARRAY['ROLE_NOT_ALLOWED', format('%s is no role here; there are %s', p_slot.role,
            (SELECT string_agg(r.role, ', ' ORDER BY r.role) FROM media.role_rules r))];
    END IF;
    most := coalesce(rule.max_position, (media.setting('media_max_position'))::bigint);
    IF (p_slot.position BETWEEN 0 AND most) IS NOT TRUE THEN
        RETURN ARRAY['POSITION_OUT_OF_RANGE', format('position %s: role %s has 0 to %s', p_slot.position, p_slot.role, most)];
    END IF;
    IF p_size > (media.setting('media_max_bytes'))::bigint THEN
        RETURN ARRAY['TOO_LARGE', format('%s bytes: the setting media_max_bytes allows %s', p_size, media.setting('media_max_bytes'))];
    END IF;
    IF NOT EXISTS (SELECT FROM unnest(rule.mime_types) AS t (type) WHERE t.type IN ('*', p_mime_type)
                      OR (t.type LIKE '%/*' AND starts_with(p_mime_type, left(t.type, -1)))) THEN
        RETURN ARRAY['TYPE_NOT_ALLOWED', format('%s: role %s takes %s', p_mime_type, p_slot.role,
            array_to_string(rule.mime_types, ', '))];
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION media.plan_of(
    p_decision public.media_write_decision, p_slot media.slot, p_ref bigint, p_other bigint, p_hash text) RETURNS media.plan
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ROW(p_decision, NULL, NULL, p_slot, p_ref, p_other, p_hash, false)::media.plan
$$;

CREATE OR REPLACE FUNCTION media.rejection(p_slot media.slot, p_ref bigint, p_hash text, p_code text, p_message text)
RETURNS media.plan
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ROW('REJECT', p_code, left(p_message, 1000), p_slot, p_ref, NULL, p_hash, false)::media.plan
$$;

-- The content that is to be used, held against its collection; and the one that gives way, in one order.
CREATE OR REPLACE FUNCTION media.hold_blobs(p_hash text, p_other text) RETURNS public.media_blobs
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    blob public.media_blobs;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('media.content:' || p_hash, 0));
    PERFORM FROM public.media_blobs b WHERE b.file_hash IN (p_hash, p_other) ORDER BY b.file_hash FOR NO KEY UPDATE;
    SELECT b.* INTO blob FROM public.media_blobs b WHERE b.file_hash = p_hash;
    RETURN blob;
END $$;

CREATE OR REPLACE FUNCTION media.plan_store(p_blob jsonb) RETURNS media.plan
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    hash text := p_blob ->> 'hash';
    blob public.media_blobs := media.hold_blobs(hash, NULL);
    plan media.plan;
BEGIN
    IF blob.file_hash IS NOT NULL THEN
        -- whoever uploads it is about to use it: its time begins anew
        UPDATE public.media_blobs b SET unreferenced_since = clock_timestamp()
         WHERE b.file_hash = hash AND b.unreferenced_since IS NOT NULL;
        RETURN media.plan_of('DUPLICATE', NULL, NULL, NULL, hash);
    END IF;
    IF (p_blob ->> 'size')::bigint > (media.setting('media_max_bytes'))::bigint THEN
        RETURN media.rejection(NULL, NULL, hash, 'TOO_LARGE',
            format('%s bytes: the setting media_max_bytes allows %s', p_blob ->> 'size', media.setting('media_max_bytes')));
    END IF;
    plan := media.plan_of('INSERT', NULL, NULL, NULL, hash);
    plan.needs_content := p_blob ->> 'storage_key' IS NULL;
    RETURN plan;
END $$;

-- p_expected: the ref that the caller believes to be there.
CREATE OR REPLACE FUNCTION media.plan_attach(
    p_action text, p_actor text, p_principal text, p_is_admin boolean, p_slot media.slot, p_expected bigint, p_blob jsonb,
    p_on_occupied text)
RETURNS media.plan
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    hash     text := p_blob ->> 'hash';
    occupant public.media_refs;
    blob     public.media_blobs;
    twin     bigint;
    why      text[];
    plan     media.plan;
BEGIN
    PERFORM media.lock_slots(p_slot);
    occupant := media.active_in(p_slot);
    blob := media.hold_blobs(hash, occupant.blob_hash);
    IF blob.file_hash IS NULL AND p_blob ->> 'mime_type' IS NULL THEN
        RETURN media.rejection(p_slot, NULL, hash, 'BLOB_UNKNOWN', format('there is no blob %s: upload it first', hash));
    END IF;
    why := media.complaint(p_slot, p_actor, p_principal, p_is_admin, coalesce(blob.mime_type, p_blob ->> 'mime_type'),
        coalesce(blob.file_size, (p_blob ->> 'size')::bigint));
    IF why IS NOT NULL THEN
        RETURN media.rejection(p_slot, NULL, hash, why[1], why[2]);
    END IF;
    IF occupant.blob_hash = hash THEN
        RETURN media.plan_of('DUPLICATE', p_slot, occupant.id, NULL, hash);
    END IF;
    twin := media.twin_of(p_slot, hash);
    IF twin IS NOT NULL THEN
        RETURN media.plan_of('DUPLICATE', p_slot, twin, NULL, hash);
    END IF;
    IF occupant.id IS NULL AND p_action = 'replace' THEN
        RETURN media.rejection(p_slot, NULL, hash, 'SLOT_EMPTY', 'the slot is empty: there is nothing to replace; attach it');
    END IF;
    IF p_expected IS DISTINCT FROM occupant.id AND p_expected IS NOT NULL THEN
        RETURN media.rejection(p_slot, occupant.id, hash, 'SLOT_CHANGED',
            format('the slot holds ref %s, not %s', coalesce(occupant.id::text, '(none)'), p_expected));
    END IF;
    IF occupant.id IS NOT NULL AND (p_on_occupied = 'reject' OR NOT media.may_replace(p_slot.role)) THEN
        RETURN media.rejection(p_slot, occupant.id, hash, 'SLOT_OCCUPIED', media.occupied(p_slot, occupant.id));
    END IF;
    plan := media.plan_of(CASE WHEN occupant.id IS NULL THEN 'INSERT' ELSE 'REPLACE' END::public.media_write_decision,
        p_slot, NULL, occupant.id, hash);
    plan.needs_content := blob.file_hash IS NULL AND p_blob ->> 'storage_key' IS NULL;
    RETURN plan;
END $$;

CREATE OR REPLACE FUNCTION media.may_replace(p_role text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT r.may_replace FROM media.role_rules r WHERE r.role = p_role), false)
$$;

CREATE OR REPLACE FUNCTION media.occupied(p_slot media.slot, p_ref bigint) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('the slot %s %s of %s:%s holds ref %s, and a slot holds one: replace it, or move it away first',
        p_slot.role, p_slot.position, p_slot.entity_type, p_slot.entity_id, p_ref)
$$;

-- Where a content may stand only once in a role of an entity: the ref that has it. Whoever holds the content's lock decides alone.
CREATE OR REPLACE FUNCTION media.twin_of(p_slot media.slot, p_hash text) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.id FROM public.media_refs r
     WHERE (media.setting('media_one_ref_per_blob'))::boolean AND r.blob_hash = p_hash AND r.deleted_at IS NULL
       AND r.workspace_id = p_slot.workspace_id AND r.entity_type = p_slot.entity_type AND r.entity_id = p_slot.entity_id
       AND r.role = p_slot.role
     ORDER BY r.id LIMIT 1
$$;

-- A ref that stands still: it, its slot and the target are locked. Where it has moved on meanwhile the call is repeated.
CREATE OR REPLACE FUNCTION media.hold_ref(p_ref bigint, p_target media.slot) RETURNS public.media_refs
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seen public.media_refs;
    held public.media_refs;
BEGIN
    SELECT r.* INTO seen FROM public.media_refs r WHERE r.id = p_ref;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF p_target IS NULL THEN
        PERFORM media.lock_slots(media.slot_of(seen));
    ELSE
        PERFORM media.lock_slots(media.slot_of(seen), media.aimed(seen, p_target), media.parking(seen));
    END IF;
    SELECT r.* INTO held FROM public.media_refs r WHERE r.id = p_ref FOR UPDATE;
    IF media.slot_of(held) IS DISTINCT FROM media.slot_of(seen) THEN
        RAISE EXCEPTION 'ref % has just been moved', p_ref USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN held;
END $$;

-- The target of a move: what is not said stays as it is.
CREATE OR REPLACE FUNCTION media.aimed(p_ref public.media_refs, p_target media.slot) RETURNS media.slot
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ROW(p_ref.workspace_id, coalesce(p_target.entity_type, p_ref.entity_type), coalesce(p_target.entity_id, p_ref.entity_id),
        coalesce(p_target.role, p_ref.role), coalesce(p_target.position, p_ref.position))::media.slot
$$;

-- Where one of two stands while they change places: beyond every position that the rules allow.
CREATE OR REPLACE FUNCTION media.parking(p_ref public.media_refs) RETURNS media.slot
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ROW(p_ref.workspace_id, p_ref.entity_type, p_ref.entity_id, p_ref.role, 2147483647)::media.slot
$$;

CREATE OR REPLACE FUNCTION media.plan_move(
    p_actor text, p_principal text, p_is_admin boolean, p_ref bigint, p_target media.slot, p_on_occupied text) RETURNS media.plan
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moved    public.media_refs := media.hold_ref(p_ref, p_target);
    target   media.slot := media.aimed(moved, p_target);
    occupant public.media_refs;
    blob     public.media_blobs;
    why      text[];
BEGIN
    IF moved.id IS NULL OR moved.deleted_at IS NOT NULL THEN
        RETURN media.rejection(target, p_ref, moved.blob_hash, 'REF_UNKNOWN', format('there is no active ref %s', p_ref));
    END IF;
    IF target = media.slot_of(moved) THEN
        RETURN media.plan_of('NOOP', target, moved.id, NULL, moved.blob_hash);
    END IF;
    occupant := media.active_in(target);
    blob := media.hold_blobs(moved.blob_hash, occupant.blob_hash);
    why := media.complaint(target, p_actor, p_principal, p_is_admin, blob.mime_type, blob.file_size);
    IF why IS NULL AND occupant.id IS NOT NULL AND p_on_occupied = 'swap' THEN
        SELECT b.* INTO blob FROM public.media_blobs b WHERE b.file_hash = occupant.blob_hash;
        why := media.complaint(media.slot_of(moved), p_actor, p_principal, p_is_admin, blob.mime_type, blob.file_size);
    END IF;
    IF why IS NOT NULL THEN
        RETURN media.rejection(target, moved.id, moved.blob_hash, why[1], why[2]);
    END IF;
    IF occupant.id IS NOT NULL AND (p_on_occupied = 'reject' OR (p_on_occupied = 'replace' AND NOT media.may_replace(target.role))) THEN
        RETURN media.rejection(target, moved.id, moved.blob_hash, 'SLOT_OCCUPIED', media.occupied(target, occupant.id));
    END IF;
    RETURN media.plan_of('REPLACE', target, moved.id, occupant.id, moved.blob_hash);
END $$;

CREATE OR REPLACE FUNCTION media.plan_detach(p_actor text, p_principal text, p_is_admin boolean, p_ref bigint) RETURNS media.plan
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended public.media_refs := media.hold_ref(p_ref, NULL);
    slot  media.slot := media.slot_of(ended);
    why   text[];
BEGIN
    IF ended.id IS NULL THEN
        RETURN media.rejection(NULL, p_ref, NULL, 'REF_UNKNOWN', format('there is no ref %s', p_ref));
    END IF;
    IF ended.deleted_at IS NOT NULL THEN
        RETURN media.plan_of('NOOP', slot, ended.id, NULL, ended.blob_hash);
    END IF;
    why := media.forbidden(slot, p_actor, p_principal, p_is_admin);
    IF why IS NOT NULL THEN
        RETURN media.rejection(slot, ended.id, ended.blob_hash, why[1], why[2]);
    END IF;
    RETURN media.plan_of('REPLACE', slot, ended.id, NULL, ended.blob_hash);
END $$;

-- Ended, not erased; what was made of it is looked at again by whoever made it.
CREATE OR REPLACE FUNCTION media.end_ref(p_request uuid, p_actor text, p_ref bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended public.media_refs;
BEGIN
    UPDATE public.media_refs r SET deleted_at = clock_timestamp(), updated_at = clock_timestamp()
     WHERE r.id = p_ref AND r.deleted_at IS NULL RETURNING r.* INTO STRICT ended;
    UPDATE media.rendition_jobs j SET again = true WHERE j.source_ref_id = p_ref;
    PERFORM media.note_write(p_request, p_actor, 'end', 'public.media_refs', media.slot_of(ended), ended.blob_hash, p_ref);
END $$;

CREATE OR REPLACE FUNCTION media.keep_blob(p_request uuid, p_actor text, p_slot media.slot, p_blob jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_new boolean;
BEGIN
    INSERT INTO public.media_blobs AS b (file_hash, mime_type, file_size, storage_key, sha256)
    SELECT p_blob ->> 'hash', p_blob ->> 'mime_type', (p_blob ->> 'size')::bigint, p_blob ->> 'storage_key', p_blob ->> 'sha256'
     WHERE p_blob ->> 'storage_key' IS NOT NULL
    ON CONFLICT (file_hash) DO NOTHING;
    is_new := FOUND;
    PERFORM media.note_write(p_request, p_actor, CASE WHEN is_new THEN 'insert' ELSE 'reuse' END, 'public.media_blobs', p_slot,
        p_blob ->> 'hash', NULL);
END $$;

CREATE OR REPLACE FUNCTION media.place_ref(
    p_request uuid, p_actor text, p_plan media.plan, p_source bigint, p_rendition text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slot media.slot := p_plan.slot;
    made bigint;
BEGIN
    INSERT INTO public.media_refs AS r (workspace_id, entity_type, entity_id, role, position, blob_hash, source_ref_id, rendition,
        created_by)
    VALUES (slot.workspace_id, slot.entity_type, slot.entity_id, slot.role, slot.position, p_plan.blob_hash, p_source, p_rendition,
        p_actor)
    RETURNING r.id INTO made;
    PERFORM media.note_write(p_request, p_actor, 'insert', 'public.media_refs', slot, p_plan.blob_hash, made);
    PERFORM media.request_renditions(made);
    RETURN made;
END $$;

CREATE OR REPLACE FUNCTION media.shift_ref(p_request uuid, p_actor text, p_ref bigint, p_slot media.slot) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moved public.media_refs;
BEGIN
    UPDATE public.media_refs r SET entity_type = p_slot.entity_type, entity_id = p_slot.entity_id, role = p_slot.role,
        position = p_slot.position, updated_at = clock_timestamp()
     WHERE r.id = p_ref AND r.deleted_at IS NULL RETURNING r.* INTO STRICT moved;
    UPDATE media.rendition_jobs j SET again = true WHERE j.source_ref_id = p_ref;
    PERFORM media.note_write(p_request, p_actor, 'move', 'public.media_refs', p_slot, moved.blob_hash, p_ref);
END $$;

CREATE OR REPLACE FUNCTION media.move_ref(p_request uuid, p_actor text, p_plan media.plan, p_on_occupied text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moved public.media_refs;
    place media.slot;
BEGIN
    SELECT r.* INTO STRICT moved FROM public.media_refs r WHERE r.id = p_plan.ref_id;
    IF p_plan.other_ref_id IS NOT NULL AND p_on_occupied = 'swap' THEN
        place := media.parking(moved);
        UPDATE public.media_refs r SET position = place.position WHERE r.id = moved.id;
        PERFORM media.shift_ref(p_request, p_actor, p_plan.other_ref_id, media.slot_of(moved));
    ELSIF p_plan.other_ref_id IS NOT NULL THEN
        PERFORM media.end_ref(p_request, p_actor, p_plan.other_ref_id);
    END IF;
    PERFORM media.shift_ref(p_request, p_actor, moved.id, p_plan.slot);
    RETURN moved.id;
END $$;

-- Everything that a request changes, besides what is written about it.
CREATE OR REPLACE FUNCTION media.carry_out(
    p_request uuid, p_action text, p_actor text, p_plan media.plan, p_blob jsonb, p_on_occupied text, p_source bigint,
    p_rendition text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CASE p_action
    WHEN 'store' THEN
        PERFORM media.keep_blob(p_request, p_actor, NULL, p_blob);
        RETURN NULL;
    WHEN 'attach', 'replace' THEN
        PERFORM media.keep_blob(p_request, p_actor, p_plan.slot, p_blob);
        IF p_plan.other_ref_id IS NOT NULL THEN
            PERFORM media.end_ref(p_request, p_actor, p_plan.other_ref_id);
        END IF;
        RETURN media.place_ref(p_request, p_actor, p_plan, p_source, p_rendition);
    WHEN 'move' THEN
        RETURN media.move_ref(p_request, p_actor, p_plan, p_on_occupied);
    WHEN 'detach' THEN
        PERFORM media.end_ref(p_request, p_actor, p_plan.ref_id);
        RETURN p_plan.ref_id;
    END CASE;
END $$;

-- What was answered under this id before; NULL = nothing yet. Another request under the same id is refused.
CREATE OR REPLACE FUNCTION media.earlier_answer(p_request uuid, p_asked jsonb) RETURNS media.answer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    past  record;
    blob  text;
BEGIN
    SELECT max(e.decision) AS decision, max(e.result) AS result, max(e.ref_id) FILTER (WHERE e.result IS NOT NULL) AS ref_id,
           max(e.blob_hash) FILTER (WHERE e.result IS NOT NULL) AS blob_hash, max(e.error_code) AS code, max(e.error_message) AS message,
           (array_agg(e.payload -> 'asked') FILTER (WHERE e.event_type = 'WRITE_REQUEST'))[1] AS asked
      INTO past FROM public.media_write_events e WHERE e.request_id = p_request;
    IF past.result IS NULL THEN
        RETURN NULL;
    END IF;
    IF past.asked IS DISTINCT FROM p_asked THEN
        RAISE EXCEPTION 'request % was another one: a new write needs a new id', p_request USING ERRCODE = 'TN021';
    END IF;
    SELECT b.storage_key INTO blob FROM public.media_blobs b WHERE b.file_hash = past.blob_hash;
    RETURN ROW(p_request, past.decision, past.result, past.ref_id, past.blob_hash, blob, past.code, past.message, true,
        false)::media.answer;
END $$;

CREATE OR REPLACE FUNCTION media.check_request(
    p_request uuid, p_action text, p_actor text, p_slot media.slot, p_ref bigint, p_blob jsonb, p_on_occupied text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad text;
BEGIN
    bad := CASE
        WHEN p_request IS NULL THEN 'a write needs a request id'
        WHEN (p_action IN ('store', 'attach', 'replace', 'move', 'detach')) IS NOT TRUE THEN 'no such action'
        WHEN (length(p_actor) BETWEEN 1 AND 200) IS NOT TRUE THEN 'an actor has 1 to 200 characters'
        WHEN p_action IN ('attach', 'replace') AND (least(length(p_slot.workspace_id), length(p_slot.entity_type),
            length(p_slot.entity_id), length(p_slot.role)) > 0 AND num_nulls(p_slot.workspace_id, p_slot.entity_type,
            p_slot.entity_id, p_slot.role, p_slot.position) = 0) IS NOT TRUE THEN 'a slot has workspace, entity, role and position'
        WHEN greatest(length(p_slot.workspace_id), length(p_slot.entity_type), length(p_slot.entity_id), length(p_slot.role)) > 200
            THEN 'names of a slot have at most 200 characters'
        WHEN p_action IN ('store', 'attach', 'replace') AND (p_blob ->> 'hash' ~ '^[0-9a-f]{64}$') IS NOT TRUE
            THEN 'a hash is BLAKE3 as 64 hexadecimal digits'
        WHEN p_blob ->> 'mime_type' IS NOT NULL AND ((p_blob ->> 'size')::bigint >= 0) IS NOT TRUE THEN 'a content has a size'
        WHEN p_action = 'store' AND p_blob ->> 'mime_type' IS NULL THEN 'a content has a type and a size'
        WHEN p_action IN ('move', 'detach') AND p_ref IS NULL THEN 'which ref?'
        WHEN (p_on_occupied IN ('replace', 'reject') OR p_on_occupied = 'swap' AND p_action = 'move') IS NOT TRUE
            THEN 'an occupied slot: replace, reject, or of a move swap' END;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION '%', bad USING ERRCODE = 'TN022';
    END IF;
END $$;

-- FAILED stays though what failed is undone: the changes are in a block of their own. What is only to be repeated (a deadlock, a
-- lock that did not come, a server in need) passes, and nothing is recorded.
CREATE OR REPLACE FUNCTION media.try_out(
    p_request uuid, p_action text, p_actor text, p_plan media.plan, p_blob jsonb, p_on_occupied text, p_source bigint,
    p_rendition text) RETURNS media.answer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    done media.answer;
BEGIN
    done.request_id := p_request;
    done.decision := p_plan.decision;
    done.blob_hash := p_plan.blob_hash;
    BEGIN
        done.ref_id := media.carry_out(p_request, p_action, p_actor, p_plan, p_blob, p_on_occupied, p_source, p_rendition);
        -- what would fail at the commit fails here
        SET CONSTRAINTS ALL IMMEDIATE;
        done.result := CASE p_plan.decision WHEN 'INSERT' THEN 'OK_INSERTED' ELSE 'OK_REPLACED' END;
    EXCEPTION WHEN OTHERS THEN
        IF SQLSTATE IN ('40P01', '40001', '55P03') OR left(SQLSTATE, 2) IN ('08', '53', '57', '58', 'XX') THEN
            RAISE;
        END IF;
        done.result := 'FAILED';
        done.ref_id := NULL;
        done.error_code := SQLSTATE;
        done.error_message := left(SQLERRM, 1000);
    END;
    RETURN done;
END $$;

CREATE OR REPLACE FUNCTION media.perform(
    p_request uuid, p_action text, p_actor text, p_principal text, p_is_admin boolean, p_slot media.slot, p_ref bigint,
    p_blob jsonb, p_on_occupied text, p_source bigint, p_rendition text) RETURNS media.answer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    asked jsonb := jsonb_build_object('action', p_action, 'slot', to_jsonb(p_slot), 'ref', p_ref, 'blob', p_blob ->> 'hash',
        'on_occupied', p_on_occupied);
    plan  media.plan;
    done  media.answer;
BEGIN
    PERFORM media.check_request(p_request, p_action, p_actor, p_slot, p_ref, p_blob, p_on_occupied);
    PERFORM media.lock_request(p_request);
    done := media.earlier_answer(p_request, asked);
    IF done.request_id IS NOT NULL THEN
        RETURN done;
    END IF;
    plan := CASE p_action
        WHEN 'store' THEN media.plan_store(p_blob)
        WHEN 'move' THEN media.plan_move(p_actor, p_principal, p_is_admin, p_ref, p_slot, p_on_occupied)
        WHEN 'detach' THEN media.plan_detach(p_actor, p_principal, p_is_admin, p_ref)
        ELSE media.plan_attach(p_action, p_actor, p_principal, p_is_admin, p_slot, p_ref, p_blob, p_on_occupied) END;
    IF plan.needs_content THEN
        RETURN ROW(p_request, NULL, NULL, NULL, plan.blob_hash, NULL, NULL, NULL, false, true)::media.answer;
    END IF;
    PERFORM media.note_request(p_request, p_actor, p_principal, plan.slot, plan.blob_hash, p_ref,
        jsonb_build_object('asked', asked, 'mime_type', p_blob ->> 'mime_type', 'file_size', (p_blob ->> 'size')::bigint));
    PERFORM media.note(p_request, 'WRITE_DECISION', p_actor, plan.slot, plan.blob_hash, plan.ref_id, plan.decision, NULL, NULL,
        NULL, jsonb_build_object('action', p_action, 'ended_ref_id', plan.other_ref_id));
    IF plan.decision IN ('INSERT', 'REPLACE') THEN
        done := media.try_out(p_request, p_action, p_actor, plan, p_blob, p_on_occupied, p_source, p_rendition);
    ELSE
        done := ROW(p_request, plan.decision, CASE plan.decision WHEN 'REJECT' THEN 'REJECTED' ELSE 'OK_RETURN_EXISTING' END,
            plan.ref_id, plan.blob_hash, NULL, plan.error_code, plan.error_message, false, false)::media.answer;
    END IF;
    PERFORM media.note(p_request, 'WRITE_RESULT', p_actor, plan.slot, plan.blob_hash, done.ref_id, NULL, done.result,
        done.error_code, done.error_message, jsonb_build_object('action', p_action));
    SELECT b.storage_key INTO done.storage_key FROM public.media_blobs b WHERE b.file_hash = plan.blob_hash;
    done.is_replay := false;
    done.needs_content := false;
    RETURN done;
END $$;

-- For whoever writes: the API and the command line. needs_content: nothing was decided; put the artifact, and ask again with its
-- storage_key. The content is there and used when the answer has that key, and nobody's where it has another.
CREATE OR REPLACE FUNCTION media.write(
    p_request uuid, p_action text, p_actor text, p_principal text, p_is_admin boolean, p_workspace text, p_entity_type text,
    p_entity_id text, p_role text, p_position integer, p_ref bigint, p_blob jsonb, p_on_occupied text) RETURNS media.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (length(p_principal) BETWEEN 1 AND 200 AND p_is_admin IS NOT NULL) IS NOT TRUE THEN
        RAISE EXCEPTION 'a write needs to know who writes' USING ERRCODE = 'TN022';
    END IF;
    RETURN media.perform(p_request, p_action, p_actor, p_principal, p_is_admin,
        ROW(p_workspace, p_entity_type, p_entity_id, p_role, p_position)::media.slot, p_ref, p_blob,
        coalesce(p_on_occupied, CASE p_action WHEN 'move' THEN 'swap' ELSE 'replace' END), NULL, NULL);
END $$;

-- For replicas of the release before, which name the actor of the request and nobody else.
CREATE OR REPLACE FUNCTION media.write(
    p_request uuid, p_action text, p_actor text, p_workspace text, p_entity_type text, p_entity_id text, p_role text,
    p_position integer, p_ref bigint, p_blob jsonb, p_on_occupied text) RETURNS media.answer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT media.perform(p_request, p_action, p_actor, NULL, false,
        ROW(p_workspace, p_entity_type, p_entity_id, p_role, p_position)::media.slot, p_ref, p_blob,
        coalesce(p_on_occupied, CASE p_action WHEN 'move' THEN 'swap' ELSE 'replace' END), NULL, NULL)
$$;
