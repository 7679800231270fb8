-- The leader's part: what nobody will ask for any more goes, a bounded step at a time. Each kind is found by an index of what has
-- ended or is gone, oldest first; what is locked is left for the next step. Retention believes the database's clock; what is open
-- or still needed stays whatever the clock says.

-- Files that have been missing for long. Not those that an open deletion names, and not while the library is being walked: the walk
-- may just have seen one of them again. A missing row is written by its return only, so updated_at says since when it is missing.
CREATE OR REPLACE FUNCTION dedup.purge_missing(p_limit integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
SET enable_bitmapscan = off AS $$
DECLARE
    since     timestamptz := supervisor.kept_since('dedup_missing_retention_days');
    needed    bigint[];
    old       bigint[];
    places    bigint[];
    walked    bigint[];
    libraries bigint[];
    purged    integer;
BEGIN
    IF NOT EXISTS (SELECT FROM dedup.library_files f WHERE f.is_missing AND f.updated_at < since) THEN
        RETURN 0;
    END IF;
    -- by the index of each state; a payload of an older make may hold anything
    SELECT array_agg(n::bigint) INTO needed FROM (
        SELECT j.payload FROM dedup.jobs j WHERE j.kind = 'delete' AND j.status = 'pending' UNION ALL
        SELECT j.payload FROM dedup.jobs j WHERE j.kind = 'delete' AND j.status = 'running' UNION ALL
        SELECT j.payload FROM dedup.jobs j WHERE j.kind = 'delete' AND j.status = 'retryable') AS j
     CROSS JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(j.payload -> 'remove') WHEN 'array' THEN j.payload -> 'remove'
        ELSE '[]' END || coalesce(j.payload -> 'keep', '[]')) AS n
     WHERE n ~ '^[0-9]{1,18}$';
    -- those being walked are left out before anything is counted: one of them must not stop the others
    walked := ARRAY(SELECT s.library_id FROM dedup.scan_sessions s JOIN dedup.jobs j ON j.id = s.job_id
                     WHERE s.status = 'running' AND j.status IN ('pending', 'running', 'retryable'));
    SELECT array_agg(o.id), array_agg(o.library_id) INTO old, places FROM (
        SELECT f.id, f.library_id FROM dedup.library_files f
         WHERE f.is_missing AND f.updated_at < since AND f.hash_status = 'idle' AND f.library_id <> ALL (walked)
           AND NOT EXISTS (SELECT FROM unnest(needed) AS n WHERE n = f.id)
         ORDER BY f.updated_at LIMIT p_limit) AS o;
    -- a walk begins with the same lock: after this statement it has begun and is seen, or waits
    libraries := ARRAY(SELECT l.id FROM dedup.library_roots l WHERE l.id = ANY (places)
                        ORDER BY l.id FOR NO KEY UPDATE SKIP LOCKED);
    libraries := ARRAY(SELECT l FROM unnest(libraries) AS l WHERE NOT EXISTS (
        SELECT FROM dedup.scan_sessions s JOIN dedup.jobs j ON j.id = s.job_id
         WHERE s.library_id = l AND s.status = 'running' AND j.status IN ('pending', 'running', 'retryable')));
    old := ARRAY(SELECT o.id FROM unnest(old, places) AS o (id, place) WHERE o.place = ANY (libraries));
    DELETE FROM dedup.library_files f WHERE f.id = ANY (ARRAY(
        SELECT w.id FROM dedup.library_files w
         WHERE w.id = ANY (old) AND w.is_missing AND w.updated_at < since AND w.hash_status = 'idle' FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS purged = ROW_COUNT;
    RETURN purged;
END $$;

-- Ended jobs, and every move of theirs with them. A run that still goes may ask for its job again and must find it.
CREATE OR REPLACE FUNCTION dedup.purge_jobs(p_limit integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
SET enable_bitmapscan = off AS $$
DECLARE
    since  timestamptz := supervisor.kept_since('dedup_job_retention_days');
    count  integer;
    purged integer;
BEGIN
    DELETE FROM dedup.jobs j WHERE j.id = ANY (ARRAY(
        SELECT w.id FROM dedup.jobs w
         WHERE w.status IN ('completed', 'failed', 'cancelled') AND coalesce(w.finished_at, w.updated_at) < since
           AND (w.run_id IS NULL OR NOT EXISTS (SELECT FROM supervisor.job_run r WHERE r.root_id = w.run_id
                AND (r.state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED') OR r.retry_at IS NOT NULL AND r.next_attempt_id IS NULL)))
         ORDER BY coalesce(w.finished_at, w.updated_at) LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS purged = ROW_COUNT;
    DELETE FROM dedup.thumbnail_cleanup_jobs c WHERE c.id = ANY (ARRAY(
        SELECT w.id FROM dedup.thumbnail_cleanup_jobs w
         WHERE w.status IN ('completed', 'failed') AND coalesce(w.finished_at, w.updated_at) < since
         ORDER BY coalesce(w.finished_at, w.updated_at) LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS count = ROW_COUNT;
    purged := purged + count;
    -- the latest stays: it is shown, and the interval counts from it
    DELETE FROM dedup.wal_maintenance_jobs c WHERE c.id = ANY (ARRAY(
        SELECT w.id FROM dedup.wal_maintenance_jobs w
         WHERE w.status IN ('completed', 'failed') AND coalesce(w.finished_at, w.updated_at) < since
           AND w.id < (SELECT max(x.id) FROM dedup.wal_maintenance_jobs x)
         ORDER BY coalesce(w.finished_at, w.updated_at) LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS count = ROW_COUNT;
    RETURN purged + count;
END $$;

-- The errors of walks that another has followed, one walk at a time, and later the walks themselves. The last walk over a library
-- stays with its errors, and the last that succeeded: the next one's progress is measured by it.
CREATE OR REPLACE FUNCTION dedup.purge_walks(p_limit integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
SET enable_bitmapscan = off AS $$
DECLARE
    walk   bigint;
    count  integer := 0;
    purged integer;
BEGIN
    SELECT s.id INTO walk FROM dedup.scan_sessions s
     WHERE s.status IN ('succeeded', 'failed') AND s.error_count > 0 AND s.errors_purged_at IS NULL
       AND s.finished_at < supervisor.kept_since('dedup_scan_error_retention_days')
       AND s.id < (SELECT max(n.id) FROM dedup.scan_sessions n WHERE n.library_id = s.library_id)
     ORDER BY s.finished_at LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        DELETE FROM dedup.scan_errors e WHERE e.session_id = walk AND e.path IN (
            SELECT w.path FROM dedup.scan_errors w WHERE w.session_id = walk ORDER BY w.path LIMIT p_limit);
        GET DIAGNOSTICS count = ROW_COUNT;
        IF count < p_limit THEN
            UPDATE dedup.scan_sessions s SET errors_purged_at = clock_timestamp() WHERE s.id = walk;
        END IF;
    END IF;
    DELETE FROM dedup.scan_sessions s WHERE s.id = ANY (ARRAY(
        SELECT w.id FROM dedup.scan_sessions w
         WHERE w.status IN ('succeeded', 'failed') AND w.finished_at < supervisor.kept_since('dedup_job_retention_days')
           AND (w.error_count = 0 OR w.errors_purged_at IS NOT NULL)
           AND w.id < CASE w.status
               WHEN 'failed' THEN (SELECT max(n.id) FROM dedup.scan_sessions n WHERE n.library_id = w.library_id)
               ELSE (SELECT max(n.id) FROM dedup.scan_sessions n WHERE n.library_id = w.library_id AND n.status = 'succeeded') END
         ORDER BY w.finished_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS purged = ROW_COUNT;
    RETURN purged + count;
END $$;

-- Thumbnails whose file is known no more are of the group `removed`, and go as any group goes: a worker unlinks the file, then
-- the row. After one that failed it is tried again in an hour.
CREATE OR REPLACE FUNCTION dedup.clean_removed() RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
SET enable_bitmapscan = off AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM dedup.thumbnails t WHERE t.group_key = 'removed')
       OR EXISTS (SELECT FROM dedup.thumbnail_cleanup_jobs c WHERE c.group_key = 'removed' AND c.status IN ('pending', 'running'))
       OR EXISTS (SELECT FROM dedup.thumbnail_cleanup_jobs c WHERE c.status = 'failed' AND c.group_key = 'removed'
                     AND coalesce(c.finished_at, c.updated_at) > clock_timestamp() - interval '1 hour') THEN
        RETURN 0;
    END IF;
    INSERT INTO dedup.thumbnail_cleanup_jobs (group_key, requested_by) VALUES ('removed', 'leader')
    ON CONFLICT (group_key) WHERE status IN ('pending', 'running') DO NOTHING;
    PERFORM pg_notify('tenure', 'lease:dedup.thumbnail_cleanup_jobs');
    RETURN 1;
END $$;

CREATE OR REPLACE FUNCTION dedup.purge(p_epoch bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM supervisor.fence(p_epoch);
    RETURN dedup.purge_missing(1000) + dedup.purge_jobs(1000) + dedup.purge_walks(1000) + dedup.clean_removed();
END $$;
