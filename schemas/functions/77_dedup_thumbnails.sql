-- Thumbnails: admitted under a capacity, made by workers, removed by group.

-- By the name alone, to queue it; what a file really is its bytes say when they are decoded.
CREATE OR REPLACE FUNCTION dedup.media_type_of(p_path text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN lower(substring(p_path FROM '\.([A-Za-z0-9]{1,5})$')) = ANY ('{jpg,jpeg,png,webp,gif,tif,tiff,bmp,heic,heif,avif}')
            THEN 'image'
        WHEN lower(substring(p_path FROM '\.([A-Za-z0-9]{1,5})$')) = ANY ('{mp4,m4v,mov,mkv,webm,avi,mpg,mpeg,3gp,ts,mts}')
            THEN 'video' END
$$;

CREATE OR REPLACE FUNCTION dedup.thumb_key_of(p_file bigint, p_size bigint, p_mtime_ns bigint, p_dimension integer, p_format text)
RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT encode(sha256(convert_to(format('1|%s|%s|%s|%s|%s', p_file, p_size, p_mtime_ns, p_dimension, p_format), 'UTF8')), 'hex')
$$;

CREATE OR REPLACE FUNCTION dedup.group_key_of(p_file bigint, p_needs_hash boolean, p_algorithm text, p_hash bytea) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN p_needs_hash OR p_hash IS NULL THEN 'file:' || p_file ELSE p_algorithm || ':' || encode(p_hash, 'hex') END
$$;

-- How many more may be queued. Whoever asks decides alone until his transaction ends: counting without a lock admits too many.
CREATE OR REPLACE FUNCTION dedup.thumbnail_room() RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('dedup.thumbnails', 0));
    RETURN (dedup.setting('dedup_thumbnail_capacity'))::bigint
        - (SELECT count(*) FROM dedup.thumbnails t WHERE t.status = 'pending')
        - (SELECT count(*) FROM dedup.thumbnails t WHERE t.status = 'running');
END $$;

CREATE OR REPLACE FUNCTION dedup.request_thumbnail(p_actor text, p_file bigint, p_format text, p_dimension integer)
RETURNS SETOF dedup.thumbnails
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    file  dedup.library_files;
    thumb dedup.thumbnails;
    key   text;
BEGIN
    IF (p_format IN ('jpeg', 'webp') AND p_dimension BETWEEN 16 AND 2048) IS NOT TRUE THEN
        RAISE EXCEPTION 'a thumbnail is jpeg or webp, of 16 to 2048 pixels' USING ERRCODE = 'TN022';
    END IF;
    SELECT f.* INTO file FROM dedup.library_files f WHERE f.id = p_file AND NOT f.is_missing;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no file %', p_file USING ERRCODE = 'TN020';
    END IF;
    IF dedup.media_type_of(file.relative_path) IS NULL THEN
        RAISE EXCEPTION 'file % is neither a picture nor a video by its name', p_file USING ERRCODE = 'TN022';
    END IF;
    key := dedup.thumb_key_of(file.id, file.size_bytes, file.mtime_ns, p_dimension, p_format);
    SELECT t.* INTO thumb FROM dedup.thumbnails t WHERE t.thumb_key = key;
    IF FOUND AND (thumb.status <> 'failed' OR thumb.retry_after > clock_timestamp()) THEN
        RETURN NEXT thumb;
        RETURN;
    END IF;
    IF dedup.thumbnail_room() < 1 THEN
        RAISE EXCEPTION 'the queue of thumbnails is full' USING ERRCODE = 'TN023';
    END IF;
    IF thumb.id IS NOT NULL THEN
        UPDATE dedup.thumbnails t SET status = 'pending', updated_at = clock_timestamp()
         WHERE t.id = thumb.id AND t.status = 'failed' AND coalesce(t.retry_after <= clock_timestamp(), true);
    ELSE
        INSERT INTO dedup.thumbnails AS t (thumb_key, file_id, group_key, media_type, format, max_dimension, source_size,
            source_mtime_ns, output_relpath)
        VALUES (key, file.id, dedup.group_key_of(file.id, file.needs_hash, file.hash_algorithm, file.content_hash),
            dedup.media_type_of(file.relative_path), p_format, p_dimension, file.size_bytes, file.mtime_ns,
            format('%s/%s/%s.%s', left(key, 2), substr(key, 3, 2), key, CASE p_format WHEN 'jpeg' THEN 'jpg' ELSE p_format END))
        ON CONFLICT (thumb_key) DO NOTHING;
    END IF;
    PERFORM supervisor.note_audit(p_actor, 'thumbs.request', 'file:' || p_file, NULL,
        jsonb_build_object('thumb_key', key, 'format', p_format, 'max_dimension', p_dimension));
    PERFORM pg_notify('tenure', 'lease:dedup.thumbnails');
    RETURN QUERY SELECT t.* FROM dedup.thumbnails t WHERE t.thumb_key = key;
END $$;

-- For callers that name nobody: the audit has their login.
CREATE OR REPLACE FUNCTION dedup.request_thumbnail(p_file bigint, p_format text, p_dimension integer)
RETURNS SETOF dedup.thumbnails
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM dedup.request_thumbnail(supervisor.by_login(), p_file, p_format, p_dimension)
$$;

-- A job's part: looks at p_limit files behind p_after_id and queues the pictures and videos of its library, as many as there is
-- room for. full: come back later.
CREATE OR REPLACE FUNCTION dedup.request_thumbnails(p_job uuid, p_claim uuid, p_after_id bigint, p_limit integer)
RETURNS TABLE (last_id bigint, queued bigint, is_full boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    job       dedup.jobs := dedup.claimed_job(p_job, p_claim, 'thumbnail');
    wanted    text := coalesce(job.payload ->> 'format', 'webp');
    dimension integer := coalesce((job.payload ->> 'max_dimension')::integer, 256);
    room      bigint := dedup.thumbnail_room();
    asked     bigint;
    until     bigint;
BEGIN
    IF room < 1 THEN
        RETURN QUERY SELECT p_after_id, 0::bigint, true;
        RETURN;
    END IF;
    SELECT max(w.id) INTO until FROM (
        SELECT f.id FROM dedup.library_files f WHERE f.id > p_after_id
         ORDER BY f.id LIMIT least(p_limit, room)) AS w;
    INSERT INTO dedup.thumbnails (thumb_key, file_id, group_key, media_type, format, max_dimension, source_size,
        source_mtime_ns, output_relpath)
    SELECT k.key, f.id, dedup.group_key_of(f.id, f.needs_hash, f.hash_algorithm, f.content_hash),
           dedup.media_type_of(f.relative_path), wanted, dimension, f.size_bytes, f.mtime_ns,
           format('%s/%s/%s.%s', left(k.key, 2), substr(k.key, 3, 2), k.key, CASE wanted WHEN 'jpeg' THEN 'jpg' ELSE wanted END)
      FROM dedup.library_files f
     CROSS JOIN LATERAL (SELECT dedup.thumb_key_of(f.id, f.size_bytes, f.mtime_ns, dimension, wanted) AS key) AS k
     WHERE f.library_id = job.library_id AND f.id > p_after_id AND f.id <= until AND NOT f.is_missing
       AND dedup.media_type_of(f.relative_path) IS NOT NULL
    ON CONFLICT (thumb_key) DO NOTHING;
    GET DIAGNOSTICS asked = ROW_COUNT;
    IF asked > 0 THEN
        UPDATE dedup.jobs j SET total_items = coalesce(j.total_items, 0) + asked WHERE j.id = p_job;
        PERFORM pg_notify('tenure', 'lease:dedup.thumbnails');
    END IF;
    RETURN QUERY SELECT until, asked, false;
END $$;

-- The leader's part: failed ones whose time has come, a few times each.
CREATE OR REPLACE FUNCTION dedup.retry_thumbnails(p_epoch bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    returned integer;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    IF NOT (dedup.setting('dedup_thumbnail_retry'))::boolean
       OR NOT EXISTS (SELECT FROM dedup.thumbnails t WHERE t.status = 'failed' AND t.retry_after <= clock_timestamp()
                         AND t.error_count < 5) THEN
        RETURN 0;
    END IF;
    UPDATE dedup.thumbnails t SET status = 'pending', updated_at = clock_timestamp()
     WHERE t.id = ANY (ARRAY(SELECT w.id FROM dedup.thumbnails w WHERE w.status = 'failed' AND w.retry_after <= clock_timestamp()
            AND w.error_count < 5 ORDER BY w.retry_after LIMIT greatest(0, least(500, dedup.thumbnail_room()))
            FOR UPDATE OF w SKIP LOCKED));
    GET DIAGNOSTICS returned = ROW_COUNT;
    IF returned > 0 THEN
        PERFORM pg_notify('tenure', 'lease:dedup.thumbnails');
    END IF;
    RETURN returned;
END $$;

CREATE OR REPLACE FUNCTION dedup.schedule_cleanup(p_actor text, p_group_key text, p_delay_seconds double precision)
RETURNS SETOF dedup.thumbnail_cleanup_jobs
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made dedup.thumbnail_cleanup_jobs;
BEGIN
    INSERT INTO dedup.thumbnail_cleanup_jobs AS c (group_key, requested_by, execute_after)
    VALUES (p_group_key, p_actor, clock_timestamp() + make_interval(secs =>
        coalesce(p_delay_seconds, (dedup.setting('dedup_cleanup_delay_seconds'))::double precision)))
    ON CONFLICT (group_key) WHERE status IN ('pending', 'running') DO NOTHING RETURNING c.* INTO made;
    IF FOUND THEN
        PERFORM supervisor.note_audit(p_actor, 'thumbs.cleanup', 'group:' || p_group_key, NULL, to_jsonb(made));
        RETURN NEXT made;
    ELSE
        RETURN QUERY SELECT c.* FROM dedup.thumbnail_cleanup_jobs c
            WHERE c.group_key = p_group_key AND c.status IN ('pending', 'running');
    END IF;
END $$;

-- The worker's part, under its claim: the files to unlink, and then their rows. Only ended ones: nothing that is being made.
CREATE OR REPLACE FUNCTION dedup.read_cleanup(p_cleanup bigint, p_claim uuid, p_limit integer)
RETURNS TABLE (id bigint, output_relpath text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.id, t.output_relpath FROM dedup.thumbnail_cleanup_jobs c JOIN dedup.thumbnails t ON t.group_key = c.group_key
     WHERE c.id = p_cleanup AND c.claim_id = p_claim AND c.status = 'running' AND c.lease_expires_at > clock_timestamp()
       AND t.status IN ('ready', 'failed')
     ORDER BY t.id LIMIT p_limit
$$;

CREATE OR REPLACE FUNCTION dedup.remove_thumbnails(p_cleanup bigint, p_claim uuid, p_ids bigint[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    removed integer;
BEGIN
    PERFORM FROM dedup.thumbnail_cleanup_jobs c WHERE c.id = p_cleanup AND c.claim_id = p_claim AND c.status = 'running'
        AND c.lease_expires_at > clock_timestamp() FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'cleanup % is no longer under this claim', p_cleanup USING ERRCODE = 'TN021';
    END IF;
    DELETE FROM dedup.thumbnails t USING dedup.thumbnail_cleanup_jobs c
     WHERE c.id = p_cleanup AND t.group_key = c.group_key AND t.id = ANY (p_ids) AND t.status IN ('ready', 'failed');
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;
