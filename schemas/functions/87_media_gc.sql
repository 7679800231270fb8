-- The way out of what nobody uses. A blob's row goes first, with nothing pointing to it; then its artifact, whose key is in no
-- row any more and never will be: a later upload of the same content has a key of its own.

-- The leader's part, with every tick. Without media_gc_execute nothing is removed and nothing queued.
CREATE OR REPLACE FUNCTION media.tend(p_epoch bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    changed integer := 0;
    queued  integer;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    IF EXISTS (SELECT FROM media.rendition_jobs j WHERE j.again) THEN
        UPDATE media.rendition_jobs j
           SET again = false, status = 'pending', failures = 0, due_at = clock_timestamp(), finished_at = NULL, worker_id = NULL,
               worker_heartbeat_at = NULL, lease_expires_at = NULL, claim_id = NULL
         WHERE j.id = ANY (ARRAY(SELECT w.id FROM media.rendition_jobs w WHERE w.again AND w.status IN ('pending', 'done', 'failed')
            ORDER BY w.id LIMIT 500 FOR UPDATE OF w SKIP LOCKED));
        GET DIAGNOSTICS changed = ROW_COUNT;
        IF changed > 0 THEN
            PERFORM pg_notify('tenure', 'lease:media.rendition_jobs');
        END IF;
    END IF;
    IF (media.setting('media_gc_execute'))::boolean THEN
        changed := changed + media.purge_refs(500);
        queued := media.queue_collections(500);
        changed := changed + queued;
        IF queued > 0 THEN
            PERFORM pg_notify('tenure', 'lease:media.collections');
        END IF;
        DELETE FROM media.collections c WHERE c.status IN ('done', 'failed') AND c.finished_at < clock_timestamp() - interval '30 days';
    END IF;
    RETURN changed;
END $$;

CREATE OR REPLACE FUNCTION media.ago(p_setting text) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT clock_timestamp() - make_interval(secs => (media.setting(p_setting))::double precision)
$$;

-- Ended refs that are old enough; those of a blob that is still used too.
CREATE OR REPLACE FUNCTION media.purge_refs(p_limit integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old    bigint[];
    purged integer;
BEGIN
    old := ARRAY(SELECT r.id FROM public.media_refs r WHERE r.deleted_at <= media.ago('media_ref_retention_seconds')
        AND NOT EXISTS (SELECT FROM public.media_refs m WHERE m.source_ref_id = r.id AND m.deleted_at IS NULL)
        ORDER BY r.deleted_at LIMIT p_limit FOR UPDATE OF r SKIP LOCKED);
    DELETE FROM media.rendition_jobs j WHERE j.source_ref_id = ANY (old);
    DELETE FROM public.media_refs r WHERE r.id = ANY (old);
    GET DIAGNOSTICS purged = ROW_COUNT;
    RETURN purged;
END $$;

CREATE OR REPLACE FUNCTION media.queue_collections(p_limit integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    queued integer;
BEGIN
    INSERT INTO media.collections (blob_hash, file_size)
    SELECT b.file_hash, b.file_size FROM public.media_blobs b
     WHERE b.unreferenced_since <= media.ago('media_gc_delay_seconds')
       AND NOT EXISTS (SELECT FROM public.media_refs r WHERE r.blob_hash = b.file_hash)
       AND NOT EXISTS (SELECT FROM media.collections c WHERE c.blob_hash = b.file_hash AND c.row_removed_at IS NULL
            AND (c.status IN ('pending', 'running') OR c.finished_at > clock_timestamp() - interval '1 hour'))
     ORDER BY b.unreferenced_since LIMIT p_limit
    ON CONFLICT (blob_hash) WHERE status IN ('pending', 'running') AND row_removed_at IS NULL DO NOTHING;
    GET DIAGNOSTICS queued = ROW_COUNT;
    RETURN queued;
END $$;

-- A person's way to the same end, without waiting for a leader.
CREATE OR REPLACE FUNCTION media.request_collection(p_actor text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    purged integer;
    queued integer;
BEGIN
    IF NOT (media.setting('media_gc_execute'))::boolean THEN
        RAISE EXCEPTION 'nothing is removed while the setting media_gc_execute is false' USING ERRCODE = 'TN021';
    END IF;
    purged := media.purge_refs(10000);
    queued := media.queue_collections(10000);
    PERFORM supervisor.note_audit(p_actor, 'media.gc', 'media', NULL, jsonb_build_object('purged_refs', purged, 'blobs', queued));
    PERFORM pg_notify('tenure', 'lease:media.collections');
    RETURN queued;
END $$;

-- The worker's part, under its claim: removes the row where nobody uses it still, and says which artifact is to go. Asked again
-- it answers the same: the key stands in the collection.
CREATE OR REPLACE FUNCTION media.collect(p_collection bigint, p_claim uuid) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    work media.collections;
    key  text;
BEGIN
    SELECT c.* INTO work FROM media.collections c WHERE c.id = p_collection FOR UPDATE;
    IF work.id IS NULL OR work.status <> 'running' OR work.claim_id IS DISTINCT FROM p_claim
       OR coalesce(work.lease_expires_at <= clock_timestamp(), true) THEN
        RAISE EXCEPTION 'collection % is no longer under this claim', p_collection USING ERRCODE = 'TN021';
    END IF;
    key := work.storage_key;
    IF work.row_removed_at IS NULL THEN
        key := media.remove_blob(work.blob_hash);
        IF key IS NOT NULL THEN
            UPDATE media.collections c SET storage_key = key, row_removed_at = clock_timestamp() WHERE c.id = p_collection;
        END IF;
    END IF;
    RETURN key;
END $$;

-- The storage key of the removed row; NULL = it stays. The row is held alone: a ref that is being made waits and finds it gone,
-- or has been made and is seen here.
CREATE OR REPLACE FUNCTION media.remove_blob(p_hash text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    blob public.media_blobs;
BEGIN
    SELECT b.* INTO blob FROM public.media_blobs b WHERE b.file_hash = p_hash FOR UPDATE;
    IF blob.file_hash IS NULL OR NOT (media.setting('media_gc_execute'))::boolean
       OR coalesce(blob.unreferenced_since > media.ago('media_gc_delay_seconds'), true)
       OR EXISTS (SELECT FROM public.media_refs r WHERE r.blob_hash = p_hash) THEN
        RETURN NULL;
    END IF;
    DELETE FROM public.media_blobs b WHERE b.file_hash = p_hash;
    IF EXISTS (SELECT FROM public.media_blobs b WHERE b.storage_key = blob.storage_key) THEN
        RAISE EXCEPTION 'blob % shares its artifact with another one', p_hash USING ERRCODE = 'TN021';
    END IF;
    RETURN blob.storage_key;
END $$;
