-- Small pictures of pictures: asked for with the ref they are of, made by workers, written as any other ref. A job says which
-- rendition of which ref; what there is to do is read off the refs as they stand, so doing it again does no harm.

CREATE OR REPLACE FUNCTION media.request_renditions(p_ref bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO media.rendition_jobs (source_ref_id, rendition)
    SELECT r.id, n.name
      FROM public.media_refs r JOIN public.media_blobs b ON b.file_hash = r.blob_hash
      JOIN media.role_rules u ON u.role = r.role AND u.is_rendered CROSS JOIN media.rendition_rules n
     WHERE r.id = p_ref AND b.mime_type IN ('image/jpeg', 'image/png', 'image/gif', 'image/webp', 'image/tiff', 'image/bmp',
        'image/heic', 'image/avif')
    ON CONFLICT (source_ref_id, rendition) DO NOTHING;
    IF FOUND THEN
        PERFORM pg_notify('tenure', 'lease:media.rendition_jobs');
    END IF;
END $$;

-- The source first, then the job: whoever ends a ref holds it before he marks its jobs.
CREATE OR REPLACE FUNCTION media.claimed_rendition(p_job bigint, p_claim uuid) RETURNS media.rendition_jobs
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job media.rendition_jobs;
BEGIN
    PERFORM FROM public.media_refs r
      WHERE r.id = (SELECT j.source_ref_id FROM media.rendition_jobs j WHERE j.id = p_job) FOR SHARE;
    SELECT j.* INTO job FROM media.rendition_jobs j WHERE j.id = p_job FOR SHARE;
    IF job.id IS NULL OR job.status <> 'running' OR job.claim_id IS DISTINCT FROM p_claim
       OR coalesce(job.lease_expires_at <= clock_timestamp(), true) THEN
        RAISE EXCEPTION 'rendition % is no longer under this claim', p_job USING ERRCODE = 'TN021';
    END IF;
    RETURN job;
END $$;

-- Is this what should stand there: its source is active, in the same entity, and its rendition is still asked for?
CREATE OR REPLACE FUNCTION media.is_wanted(p_made public.media_refs) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM public.media_refs s JOIN media.role_rules u ON u.role = s.role AND u.is_rendered
                    WHERE s.id = p_made.source_ref_id AND s.deleted_at IS NULL AND s.workspace_id = p_made.workspace_id
                      AND s.entity_type = p_made.entity_type AND s.entity_id = p_made.entity_id)
       AND EXISTS (SELECT FROM media.rendition_rules n WHERE n.name = p_made.rendition)
$$;

-- What there is to do; no row: nothing, or only to withdraw.
CREATE OR REPLACE FUNCTION media.read_rendition(p_job bigint, p_claim uuid)
RETURNS TABLE (blob_hash text, storage_key text, file_size bigint, max_dimension integer, format text, quality integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job media.rendition_jobs := media.claimed_rendition(p_job, p_claim);
BEGIN
    RETURN QUERY
    SELECT b.file_hash, b.storage_key, b.file_size, n.max_dimension, n.format, n.quality
      FROM public.media_refs r JOIN public.media_blobs b ON b.file_hash = r.blob_hash
      JOIN media.role_rules u ON u.role = r.role AND u.is_rendered
      JOIN media.rendition_rules n ON n.name = job.rendition
     WHERE r.id = job.source_ref_id AND r.deleted_at IS NULL
       AND NOT EXISTS (SELECT FROM public.media_refs m WHERE m.source_ref_id = r.id AND m.rendition = n.name
                          AND m.deleted_at IS NULL AND media.is_wanted(m));
END $$;

-- Made ones that nobody wants any more, each by a request of its own: ending a ref ends that ref and no other.
CREATE OR REPLACE FUNCTION media.withdraw_renditions(p_job bigint, p_claim uuid) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job       media.rendition_jobs := media.claimed_rendition(p_job, p_claim);
    made      public.media_refs;
    withdrawn integer := 0;
BEGIN
    FOR made IN SELECT m.* FROM public.media_refs m
                 WHERE m.source_ref_id = job.source_ref_id AND m.rendition = job.rendition AND m.deleted_at IS NULL
                 ORDER BY m.id LOOP
        IF NOT media.is_wanted(made) THEN
            PERFORM media.perform(gen_random_uuid(), 'detach', 'renditions', 'renditions', true, NULL, made.id, NULL, 'replace', NULL, NULL);
            withdrawn := withdrawn + 1;
        END IF;
    END LOOP;
    RETURN withdrawn;
END $$;

-- The place of its source where that is free, else the first free one. What stands there unwanted makes room.
CREATE OR REPLACE FUNCTION media.thumbnail_slot(p_source public.media_refs) RETURNS media.slot
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slot     media.slot := ROW(p_source.workspace_id, p_source.entity_type, p_source.entity_id, 'thumbnail', p_source.position);
    occupant public.media_refs;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('media.thumbnails:' || jsonb_build_array(slot.workspace_id, slot.entity_type,
        slot.entity_id)::text, 0));
    SELECT r.* INTO occupant FROM public.media_refs r
     WHERE r.workspace_id = slot.workspace_id AND r.entity_type = slot.entity_type AND r.entity_id = slot.entity_id
       AND r.role = slot.role AND r.position = slot.position AND r.deleted_at IS NULL;
    IF NOT FOUND THEN
        RETURN slot;
    END IF;
    IF occupant.source_ref_id IS NOT NULL AND NOT media.is_wanted(occupant) THEN
        PERFORM media.perform(gen_random_uuid(), 'detach', 'renditions', 'renditions', true, NULL, occupant.id, NULL, 'replace', NULL, NULL);
        RETURN slot;
    END IF;
    SELECT min(p.n) INTO slot.position FROM (
        SELECT 0 AS n
        UNION ALL
        SELECT r.position + 1 FROM public.media_refs r
         WHERE r.workspace_id = slot.workspace_id AND r.entity_type = slot.entity_type AND r.entity_id = slot.entity_id
           AND r.role = slot.role AND r.deleted_at IS NULL) AS p
     WHERE NOT EXISTS (SELECT FROM public.media_refs r
         WHERE r.workspace_id = slot.workspace_id AND r.entity_type = slot.entity_type AND r.entity_id = slot.entity_id
           AND r.role = slot.role AND r.position = p.n AND r.deleted_at IS NULL);
    RETURN slot;
END $$;

-- Asked again under the same claim, it is the same request. NULL = its source has ended meanwhile.
CREATE OR REPLACE FUNCTION media.put_rendition(p_job bigint, p_claim uuid, p_request uuid, p_blob jsonb) RETURNS media.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job    media.rendition_jobs := media.claimed_rendition(p_job, p_claim);
    source public.media_refs;
    made   public.media_refs;
    slot   media.slot;
    asked  jsonb := (SELECT e.payload -> 'asked' FROM public.media_write_events e
        WHERE e.request_id = p_request AND e.event_type = 'WRITE_REQUEST');
BEGIN
    IF asked IS NOT NULL THEN
        RETURN media.earlier_answer(p_request, asked);
    END IF;
    SELECT r.* INTO source FROM public.media_refs r WHERE r.id = job.source_ref_id AND r.deleted_at IS NULL;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT m.* INTO made FROM public.media_refs m WHERE m.source_ref_id = source.id AND m.rendition = job.rendition
        AND m.deleted_at IS NULL AND m.entity_type = source.entity_type AND m.entity_id = source.entity_id ORDER BY m.id LIMIT 1;
    slot := CASE WHEN made.id IS NULL THEN media.thumbnail_slot(source) ELSE media.slot_of(made) END;
    RETURN media.perform(p_request, 'attach', 'renditions', 'renditions', true, slot, made.id, p_blob,
        CASE WHEN made.id IS NULL THEN 'reject' ELSE 'replace' END, source.id, job.rendition);
END $$;
