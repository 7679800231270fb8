-- A walk over a library, written down batch by batch. Every call names the job's claim: a worker that lost it changes nothing.

CREATE OR REPLACE FUNCTION dedup.begin_scan(p_job uuid, p_claim uuid)
RETURNS TABLE (session_id bigint, library text, root_path text, cursor_path text, batches integer, files_seen bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    job   dedup.jobs := dedup.claimed_job(p_job, p_claim, 'scan');
    found bigint;
BEGIN
    IF job.library_id IS NULL THEN
        RAISE EXCEPTION 'job % names no library', p_job USING ERRCODE = 'TN022';
    END IF;
    -- not while what is missing for long is being purged: a file of it may be there again
    PERFORM FROM dedup.library_roots l WHERE l.id = job.library_id FOR SHARE;
    UPDATE dedup.scan_sessions s SET status = 'failed', error_code = 'SUPERSEDED', finished_at = clock_timestamp(),
           error_message = 'another scan of the library has begun', updated_at = clock_timestamp()
     WHERE s.library_id = job.library_id AND s.status = 'running' AND s.job_id IS DISTINCT FROM p_job;
    UPDATE dedup.scan_sessions s SET resumed = s.resumed + 1, updated_at = clock_timestamp()
     WHERE s.job_id = p_job AND s.status = 'running' RETURNING s.id INTO found;
    IF found IS NULL THEN
        INSERT INTO dedup.scan_sessions AS s (library_id, job_id) VALUES (job.library_id, p_job) RETURNING s.id INTO found;
    END IF;
    RETURN QUERY SELECT s.id, l.name, l.root_path, s.cursor_path::text, s.batches, s.files_seen
        FROM dedup.scan_sessions s JOIN dedup.library_roots l ON l.id = s.library_id WHERE s.id = found;
END $$;

-- Paths come in their byte order and cover (p_after, p_upto], or all behind p_after when final. What stands there in the
-- table and is not named is missing, except p_unknown (with all beneath where it ends in /), which could not be read. A repeated
-- batch changes nothing and is answered as before. `reached`: only so far, because more stood there than one call takes; the rest
-- follows as the next batch.
CREATE OR REPLACE FUNCTION dedup.record_scan(
    p_job uuid, p_claim uuid, p_session bigint, p_batch integer, p_after text, p_upto text, p_final boolean,
    p_paths text[], p_sizes bigint[], p_mtimes bigint[], p_inodes bigint[], p_devices bigint[], p_hashes bytea[],
    p_fault_paths text[], p_fault_codes text[], p_unknown text[], p_directories bigint, p_skipped bigint)
RETURNS TABLE (files_new bigint, files_changed bigint, files_missing bigint, reached text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    job     dedup.jobs := dedup.claimed_job(p_job, p_claim, 'scan');
    algorithm text := coalesce(job.payload ->> 'algorithm', 'blake3');
    session dedup.scan_sessions;
    gone    bigint[];
    altered bigint[];
    sizes   bigint[];
    mtimes  bigint[];
    inodes  bigint[];
    devices bigint[];
    others  boolean[];
    changed bigint;
    fresh   bigint;
    taken   bigint;
    bound   text;
    seen    bigint := cardinality(p_paths);
    is_as_known boolean;
    is_unknown  boolean;
    hashed  bigint := 0;
BEGIN
    SELECT s.* INTO session FROM dedup.scan_sessions s WHERE s.id = p_session AND s.job_id = p_job FOR UPDATE;
    IF session.id IS NULL OR session.status <> 'running' OR session.batches NOT IN (p_batch, p_batch - 1) THEN
        RAISE EXCEPTION 'scan % does not go on at batch %', p_session, p_batch USING ERRCODE = 'TN021';
    END IF;
    IF session.batches = p_batch THEN
        RETURN QUERY SELECT session.last_new, session.last_changed, session.last_missing, session.last_reached::text;
        RETURN;
    END IF;
    IF session.cursor_path <> p_after COLLATE "C" THEN
        RAISE EXCEPTION 'scan % stands elsewhere', p_session USING ERRCODE = 'TN021';
    END IF;
    IF p_hashes IS NOT NULL AND NOT coalesce((job.payload ->> 'hash')::boolean, false) THEN
        RAISE EXCEPTION 'job % asks for no hashes', p_job USING ERRCODE = 'TN022';
    END IF;
    -- a disk that is not mounted looks like this
    IF p_final AND p_batch = 1 AND cardinality(p_paths) = 0 AND NOT coalesce((job.payload ->> 'allow_empty')::boolean, false)
       AND EXISTS (SELECT FROM dedup.library_files f WHERE f.library_id = job.library_id AND NOT f.is_missing) THEN
        RAISE EXCEPTION 'the library is empty and was not' USING ERRCODE = 'TN022',
            HINT = 'is its disk mounted? allow_empty takes it as it is';
    END IF;

    -- The two common stretches are told apart without a join: nothing stands there yet, or exactly what was found. One row more than
    -- was found is enough to see that neither holds.
    SELECT array_agg(k.relative_path::text) IS NOT DISTINCT FROM nullif(p_paths, '{}')
           AND array_agg(k.size_bytes) IS NOT DISTINCT FROM nullif(p_sizes, '{}')
           AND array_agg(k.mtime_ns) IS NOT DISTINCT FROM nullif(p_mtimes, '{}')
           AND array_agg(k.inode) IS NOT DISTINCT FROM nullif(p_inodes, '{}')
           AND array_agg(k.device) IS NOT DISTINCT FROM nullif(p_devices, '{}'), count(*) = 0
      INTO is_as_known, is_unknown
      FROM (SELECT f.relative_path, f.size_bytes, f.mtime_ns, f.inode, f.device FROM dedup.library_files f
             WHERE f.library_id = job.library_id AND NOT f.is_missing AND f.relative_path > p_after COLLATE "C"
               AND (p_final OR f.relative_path <= p_upto COLLATE "C")
             ORDER BY f.relative_path LIMIT seen + 1) AS k;
    is_unknown := is_unknown AND NOT EXISTS (SELECT FROM dedup.library_files f
         WHERE f.library_id = job.library_id AND f.relative_path > p_after COLLATE "C"
           AND (p_final OR f.relative_path <= p_upto COLLATE "C"));
    IF is_as_known OR is_unknown THEN
        changed := 0;
        fresh := CASE WHEN is_unknown THEN seen ELSE 0 END;
        taken := seen;
    ELSE
        -- where many more stand in the table than were found, a part of the stretch: a call is never longer than a statement may be
        SELECT f.relative_path INTO bound FROM dedup.library_files f
         WHERE f.library_id = job.library_id AND f.relative_path > p_after COLLATE "C"
           AND (p_final OR f.relative_path <= p_upto COLLATE "C")
         ORDER BY f.relative_path OFFSET seen + 5000 LIMIT 1;

        WITH given AS MATERIALIZED (
            SELECT * FROM unnest(p_paths, p_sizes, p_mtimes, p_inodes, p_devices) AS g (path, size, mtime, inode, device)
             WHERE g.path > p_after COLLATE "C" AND (bound IS NULL OR g.path <= bound COLLATE "C")
        ), known AS MATERIALIZED (
            SELECT f.id, f.relative_path, f.size_bytes, f.mtime_ns, f.inode, f.device, f.is_missing,
                   -- leave was given to move it, and whoever has it may not have moved it yet
                   f.is_missing AND f.trashed_by IS NOT NULL AND (f.trashed_at > clock_timestamp() - interval '10 minutes'
                       OR EXISTS (SELECT FROM dedup.jobs d WHERE d.id = f.trashed_by AND d.status IN ('pending', 'running', 'retryable')))
                       AS is_leaving
              FROM dedup.library_files f
             WHERE f.library_id = job.library_id AND f.relative_path > p_after COLLATE "C"
               AND CASE WHEN bound IS NOT NULL THEN f.relative_path <= bound COLLATE "C"
                        ELSE p_final OR f.relative_path <= p_upto COLLATE "C" END
        ), compared AS MATERIALIZED (
            SELECT k.id, g.path, g.size, g.mtime, g.inode, g.device, k.is_missing, k.relative_path,
                   (k.size_bytes, k.mtime_ns, k.inode) IS DISTINCT FROM (g.size, g.mtime, g.inode) AS is_other,
                   k.id IS NOT NULL AND g.path IS NOT NULL AND NOT k.is_leaving AND (k.is_missing
                       OR (k.size_bytes, k.mtime_ns, k.inode, k.device) IS DISTINCT FROM (g.size, g.mtime, g.inode, g.device)) AS is_altered
              FROM given AS g FULL JOIN known AS k ON k.relative_path = g.path COLLATE "C"
        )
        SELECT array_agg(c.id) FILTER (WHERE c.path IS NULL AND NOT c.is_missing
                   -- unknown is the path itself, or one of the directories above it
                   AND (cardinality(p_unknown) = 0 OR NOT (c.relative_path = ANY (p_unknown) OR EXISTS (
                       SELECT FROM generate_series(1, cardinality(string_to_array(c.relative_path, '/')) - 1) AS n
                        WHERE array_to_string((string_to_array(c.relative_path, '/'))[1:n], '/') || '/' = ANY (p_unknown))))),
               array_agg(c.id) FILTER (WHERE c.is_altered), array_agg(c.size) FILTER (WHERE c.is_altered),
               array_agg(c.mtime) FILTER (WHERE c.is_altered), array_agg(c.inode) FILTER (WHERE c.is_altered),
               array_agg(c.device) FILTER (WHERE c.is_altered), array_agg(c.is_other) FILTER (WHERE c.is_altered),
               count(*) FILTER (WHERE c.is_altered AND (c.is_missing OR c.is_other)),
               count(*) FILTER (WHERE c.id IS NULL), count(c.path)
          INTO gone, altered, sizes, mtimes, inodes, devices, others, changed, fresh, taken
          FROM compared AS c;
    END IF;

    IF gone IS NOT NULL THEN
        UPDATE dedup.library_files f SET is_missing = true, missing_session_id = p_session, updated_at = clock_timestamp(),
               hash_status = CASE WHEN f.hash_status = 'pending' THEN 'idle' ELSE f.hash_status END
         WHERE f.id = ANY (gone);
    END IF;
    IF altered IS NOT NULL THEN
        -- another device number alone is a disk mounted again, not another content
        UPDATE dedup.library_files f SET size_bytes = g.size, mtime_ns = g.mtime, inode = g.inode, device = g.device,
               is_missing = false, missing_session_id = NULL, trashed_by = NULL, trashed_at = NULL, trash_path = NULL,
               needs_hash = f.needs_hash OR g.is_other, prefix_hash = CASE WHEN NOT g.is_other THEN f.prefix_hash END,
               -- whoever is hashing it hashes what it was: his claim is over
               hash_status = CASE WHEN g.is_other AND f.hash_status = 'running' THEN 'pending' ELSE f.hash_status END,
               claim_id = CASE WHEN NOT g.is_other THEN f.claim_id END,
               hash_retry_after = NULL, updated_at = clock_timestamp()
          FROM unnest(altered, sizes, mtimes, inodes, devices, others) AS g (id, size, mtime, inode, device, is_other)
         WHERE f.id = g.id;
    END IF;
    IF fresh > 0 THEN
        -- a hash is written with what it is the hash of, or never by this
        WITH made AS (
            INSERT INTO dedup.library_files AS f (library_id, relative_path, size_bytes, mtime_ns, inode, device, first_session_id,
                needs_hash, hash_algorithm, content_hash, hashed_size, hashed_mtime_ns, hashed_at)
            SELECT job.library_id, g.path, g.size, g.mtime, g.inode, g.device, p_session, g.hash IS NULL,
                   CASE WHEN g.hash IS NOT NULL THEN algorithm END, g.hash, CASE WHEN g.hash IS NOT NULL THEN g.size END,
                   CASE WHEN g.hash IS NOT NULL THEN g.mtime END, CASE WHEN g.hash IS NOT NULL THEN now() END
              FROM unnest(p_paths, p_sizes, p_mtimes, p_inodes, p_devices, p_hashes) AS g (path, size, mtime, inode, device, hash)
             WHERE g.path > p_after COLLATE "C" AND (bound IS NULL OR g.path <= bound COLLATE "C")
               AND (fresh = taken OR NOT EXISTS (SELECT FROM dedup.library_files f
                    WHERE f.library_id = job.library_id AND f.relative_path = g.path COLLATE "C"))
            RETURNING f.content_hash IS NOT NULL AS is_hashed
        )
        SELECT count(*) FILTER (WHERE m.is_hashed) INTO hashed FROM made AS m;
    END IF;

    -- every error is counted, and as many are kept as somebody could read
    INSERT INTO dedup.scan_errors (session_id, path, code)
    SELECT p_session, e.path, e.code FROM unnest(p_fault_paths, p_fault_codes) AS e (path, code)
     LIMIT greatest(0, 10000 - session.error_count) ON CONFLICT DO NOTHING;
    UPDATE dedup.scan_sessions s SET batches = p_batch, cursor_path = coalesce(bound, p_upto), updated_at = clock_timestamp(),
           files_seen = s.files_seen + taken,
           bytes_seen = s.bytes_seen + coalesce((SELECT sum(g.size) FROM unnest(p_paths, p_sizes) AS g (path, size)
               WHERE g.path > p_after COLLATE "C" AND (bound IS NULL OR g.path <= bound COLLATE "C")), 0),
           -- once, with the last part
           directories_seen = s.directories_seen + CASE WHEN bound IS NULL THEN p_directories ELSE 0 END,
           skipped = s.skipped + CASE WHEN bound IS NULL THEN p_skipped ELSE 0 END,
           error_count = s.error_count + CASE WHEN bound IS NULL THEN cardinality(p_fault_paths) ELSE 0 END,
           files_hashed = s.files_hashed + hashed,
           files_new = s.files_new + fresh, files_changed = s.files_changed + changed,
           files_missing = s.files_missing + coalesce(cardinality(gone), 0),
           last_new = fresh, last_changed = changed, last_missing = coalesce(cardinality(gone), 0), last_reached = bound
     WHERE s.id = p_session;
    RETURN QUERY SELECT fresh, changed, coalesce(cardinality(gone), 0)::bigint, bound;
END $$;

-- As a replica of the release before calls it.
CREATE OR REPLACE FUNCTION dedup.record_scan(
    p_job uuid, p_claim uuid, p_session bigint, p_batch integer, p_after text, p_upto text, p_final boolean,
    p_paths text[], p_sizes bigint[], p_mtimes bigint[], p_inodes bigint[], p_devices bigint[],
    p_fault_paths text[], p_fault_codes text[], p_unknown text[], p_directories bigint, p_skipped bigint)
RETURNS TABLE (files_new bigint, files_changed bigint, files_missing bigint, reached text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.files_new, s.files_changed, s.files_missing, s.reached FROM dedup.record_scan(p_job, p_claim, p_session, p_batch, p_after,
        p_upto, p_final, p_paths, p_sizes, p_mtimes, p_inodes, p_devices, NULL, p_fault_paths, p_fault_codes, p_unknown, p_directories,
        p_skipped) AS s
$$;

-- The first path behind p_after that stands in the table, missing or not.
CREATE OR REPLACE FUNCTION dedup.find_known(p_job uuid, p_claim uuid, p_after text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off
SET enable_bitmapscan = off AS $$
DECLARE
    job dedup.jobs := dedup.claimed_job(p_job, p_claim, 'scan');
BEGIN
    RETURN (SELECT f.relative_path FROM dedup.library_files f
        WHERE f.library_id = job.library_id AND f.relative_path > p_after COLLATE "C" ORDER BY f.relative_path LIMIT 1);
END $$;

-- A file that went missing and one that came, of the same inode, size and time, are one file that was moved: it keeps its
-- row, and with it hash and thumbnails. A part of those that went missing at a time, behind p_after_id; last_id NULL = no more.
CREATE OR REPLACE FUNCTION dedup.fold_moves(p_job uuid, p_claim uuid, p_session bigint, p_after_id bigint, p_limit integer)
RETURNS TABLE (last_id bigint, folded integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET plan_cache_mode = force_custom_plan
-- what went and what came are many, whatever old statistics say; the look for each inode is a loop all the same
SET enable_nestloop = off AS $$
#variable_conflict use_column
DECLARE
    job   dedup.jobs := dedup.claimed_job(p_job, p_claim, 'scan');
    until bigint;
    old   bigint[];
    new   bigint[];
    paths text[];
BEGIN
    IF NOT EXISTS (SELECT FROM dedup.scan_sessions s WHERE s.id = p_session AND s.job_id = p_job AND s.status = 'running') THEN
        RAISE EXCEPTION 'scan % is not of this job', p_session USING ERRCODE = 'TN021';
    END IF;
    WITH part AS MATERIALIZED (
        SELECT f.id, f.inode, f.device, f.size_bytes, f.mtime_ns, f.trashed_at IS NULL AS was_moved FROM dedup.library_files f
         WHERE f.missing_session_id = p_session AND f.is_missing AND f.id > p_after_id ORDER BY f.id LIMIT p_limit
    ), gone AS (
        SELECT p.*, row_number() OVER (PARTITION BY p.inode, p.device, p.size_bytes, p.mtime_ns ORDER BY p.id) AS n
          FROM part p WHERE p.was_moved
    ), come AS (
        SELECT f.id, f.relative_path, f.inode, f.device, f.size_bytes, f.mtime_ns, row_number() OVER
               (PARTITION BY f.inode, f.device, f.size_bytes, f.mtime_ns ORDER BY f.id) AS n
          FROM (SELECT DISTINCT p.inode FROM part p) AS i
         CROSS JOIN LATERAL (SELECT c.* FROM dedup.library_files c
              WHERE c.library_id = job.library_id AND c.inode = i.inode AND NOT c.is_missing AND c.first_session_id = p_session
             OFFSET 0) AS f
    ), pair AS (
        SELECT g.id AS old, c.id AS new, c.relative_path FROM gone g JOIN come c USING (inode, device, size_bytes, mtime_ns, n)
    )
    SELECT (SELECT max(p.id) FROM part p), array_agg(p.old ORDER BY p.old), array_agg(p.new ORDER BY p.old),
           array_agg(p.relative_path ORDER BY p.old) INTO until, old, new, paths FROM pair p;
    IF old IS NOT NULL THEN
        DELETE FROM dedup.library_files f WHERE f.id = ANY (new);
        UPDATE dedup.library_files f SET relative_path = p.path, is_missing = false, missing_session_id = NULL,
               updated_at = clock_timestamp()
          FROM unnest(old, paths) AS p (id, path) WHERE f.id = p.id;
        UPDATE dedup.scan_sessions s SET files_moved = s.files_moved + cardinality(old),
               files_new = s.files_new - cardinality(old), files_missing = s.files_missing - cardinality(old)
         WHERE s.id = p_session;
    END IF;
    RETURN QUERY SELECT until, coalesce(cardinality(old), 0);
END $$;

CREATE OR REPLACE FUNCTION dedup.end_scan(p_job uuid, p_claim uuid, p_session bigint, p_error_code text, p_error_message text)
RETURNS SETOF dedup.scan_sessions
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job     dedup.jobs := dedup.claimed_job(p_job, p_claim, 'scan');
    session dedup.scan_sessions;
BEGIN
    UPDATE dedup.scan_sessions s SET status = CASE WHEN p_error_code IS NULL THEN 'succeeded' ELSE 'failed' END,
           error_code = p_error_code, error_message = p_error_message, finished_at = clock_timestamp(),
           updated_at = clock_timestamp()
     WHERE s.id = p_session AND s.job_id = p_job AND s.status = 'running' RETURNING s.* INTO session;
    IF FOUND AND p_error_code IS NULL THEN
        UPDATE dedup.library_roots l SET last_scanned_at = clock_timestamp(), updated_at = clock_timestamp()
         WHERE l.id = job.library_id;
    END IF;
    RETURN QUERY SELECT s.* FROM dedup.scan_sessions s WHERE s.id = p_session AND s.job_id = p_job;
END $$;
