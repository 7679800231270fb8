-- Which files are hashed, and what is written down of it. Files are leased in batches: the lease stands in the first file of
-- a batch, so that a hundred thousand small files cost a hundred leases. Only files that need it are hashed; where only
-- duplicates are wanted, only those with a partner of the same size, and of large ones only those that begin alike.

-- Are there files hashed in another way than this? Seldom; and only then is there a reason to look at files that have their hash.
CREATE OR REPLACE FUNCTION dedup.hashed_otherwise(p_algorithm text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT EXISTS (SELECT FROM dedup.library_files f
        WHERE NOT f.is_missing AND NOT f.needs_hash AND f.content_hash IS NOT NULL
          AND f.hash_algorithm = CASE p_algorithm WHEN 'blake3' THEN 'sha256' ELSE 'blake3' END)
$$;

-- Looks at p_limit files behind p_after_id that have no hash (or, where some were hashed in another way, at all) and makes batches of those that need a hash: of so many files and bytes at most,
-- as one worker should take at a time.
CREATE OR REPLACE FUNCTION dedup.plan_hash(
    p_job uuid, p_claim uuid, p_after_id bigint, p_limit integer, p_files integer, p_bytes bigint)
RETURNS TABLE (last_id bigint, queued bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    job       dedup.jobs := dedup.claimed_job(p_job, p_claim, 'hash');
    algorithm text := coalesce(job.payload ->> 'algorithm', 'blake3');
    only_duplicates boolean := coalesce(job.payload ->> 'mode', 'all') = 'duplicates';
    until     bigint;
    asked     bigint;
    -- where only duplicates are wanted, the beginning of a larger file is read first: it counts as little
    beginning bigint := CASE WHEN only_duplicates THEN 131072 END;
    others    boolean := dedup.hashed_otherwise(algorithm);
BEGIN
    SELECT max(w.id) INTO until FROM (
        SELECT f.id FROM dedup.library_files f
         WHERE f.id > p_after_id AND (others OR f.needs_hash AND NOT f.is_missing) ORDER BY f.id LIMIT p_limit) AS w;
    IF until IS NULL THEN
        RETURN QUERY SELECT NULL::bigint, 0::bigint;
        RETURN;
    END IF;
    WITH wanted AS (
        SELECT f.id, f.hash_status, (row_number() OVER w - 1) / p_files + div(sum(
                   CASE WHEN f.prefix_hash IS NULL THEN least(f.size_bytes, beginning) ELSE f.size_bytes END) OVER w, p_bytes)::bigint
                   AS batch
          FROM dedup.library_files f
         WHERE f.id > p_after_id AND f.id <= until AND NOT f.is_missing
           AND (f.needs_hash OR others AND f.hash_algorithm <> algorithm)
           AND (f.hash_retry_after IS NULL OR f.hash_retry_after <= clock_timestamp())
           -- a partner may live in another library, and is needed then
           AND (only_duplicates OR job.library_id IS NULL OR f.library_id = job.library_id)
        WINDOW w AS (ORDER BY f.id)
    ), batch AS MATERIALIZED (
        -- what somebody still works on for a job that is over leads no batch; his own is counted out before this job ends
        SELECT min(w.id) FILTER (WHERE w.hash_status <> 'running') AS lead, max(w.id) AS until, count(*) AS files
          FROM wanted w GROUP BY w.batch
    ), made AS (
        UPDATE dedup.library_files f SET hash_status = 'pending', hash_until = b.until, hash_files = b.files, hash_job_id = p_job
          FROM batch b
         -- also what waits for a job that is over: whoever comes before the leader lets it go takes it along
         WHERE f.id = b.lead AND (f.hash_status = 'idle' OR f.hash_status = 'pending' AND f.hash_job_id IS DISTINCT FROM p_job)
        RETURNING b.files
    )
    SELECT coalesce(sum(m.files), 0) INTO asked FROM made m;
    IF asked > 0 THEN
        UPDATE dedup.jobs j SET total_items = coalesce(j.total_items, 0) + asked WHERE j.id = p_job;
        PERFORM pg_notify('tenure', 'lease:dedup.library_files');
    END IF;
    RETURN QUERY SELECT until, asked;
END $$;

-- The batch of a worker, checked: its first file runs under this claim, and the lease has not run out.
CREATE OR REPLACE FUNCTION dedup.claimed_batch(p_lead bigint, p_claim uuid) RETURNS dedup.library_files
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lead dedup.library_files;
BEGIN
    SELECT f.* INTO lead FROM dedup.library_files f WHERE f.id = p_lead FOR NO KEY UPDATE;
    IF lead.id IS NULL OR lead.hash_status <> 'running' OR lead.claim_id IS DISTINCT FROM p_claim
       OR coalesce(lead.lease_expires_at <= clock_timestamp(), true) THEN
        RAISE EXCEPTION 'the batch of file % is no longer under this claim', p_lead USING ERRCODE = 'TN021';
    END IF;
    RETURN lead;
END $$;

-- The files of a batch that are to be read now, whole or only their beginnings (of those larger than p_prefix_over).
CREATE OR REPLACE FUNCTION dedup.read_hash_batch(p_lead bigint, p_claim uuid, p_prefix_over bigint)
RETURNS TABLE (id bigint, library_id bigint, root_path text, relative_path text, size_bytes bigint, mtime_ns bigint,
    inode bigint, algorithm text, is_prefix boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    lead      dedup.library_files := dedup.claimed_batch(p_lead, p_claim);
    job       dedup.jobs;
    algorithm text;
    only_duplicates boolean;
    others    boolean;
BEGIN
    SELECT j.* INTO job FROM dedup.jobs j WHERE j.id = lead.hash_job_id AND j.status IN ('running', 'pending', 'retryable');
    IF NOT FOUND THEN
        RETURN;  -- nobody wants it any more
    END IF;
    algorithm := coalesce(job.payload ->> 'algorithm', 'blake3');
    only_duplicates := coalesce(job.payload ->> 'mode', 'all') = 'duplicates';
    others := dedup.hashed_otherwise(algorithm);
    RETURN QUERY
    SELECT f.id, f.library_id, (SELECT l.root_path FROM dedup.library_roots l WHERE l.id = f.library_id), f.relative_path::text,
           f.size_bytes, f.mtime_ns, f.inode, algorithm,
           only_duplicates AND f.size_bytes > p_prefix_over AND f.prefix_hash IS NULL
      FROM dedup.library_files f
     WHERE f.id BETWEEN lead.id AND lead.hash_until AND NOT f.is_missing
       AND (f.needs_hash OR others AND f.hash_algorithm <> algorithm)
       AND (f.hash_retry_after IS NULL OR f.hash_retry_after <= clock_timestamp())
       -- each way to a partner has an index: the files of one size are many. That it is another file is always said, also where it
       -- must be: else the planner may read all files once to look into them
       AND CASE
           WHEN NOT only_duplicates THEN job.library_id IS NULL OR f.library_id = job.library_id
           WHEN f.prefix_hash IS NOT NULL THEN
               EXISTS (SELECT FROM dedup.library_files o
                        WHERE o.size_bytes = f.size_bytes AND o.prefix_hash = f.prefix_hash AND NOT o.is_missing AND o.id <> f.id
                          AND (job.library_id IS NULL OR job.library_id IN (f.library_id, o.library_id)))
            OR EXISTS (SELECT FROM dedup.library_files o
                        WHERE o.size_bytes = f.size_bytes AND o.prefix_hash IS NULL AND NOT o.is_missing AND NOT o.needs_hash
                          AND o.size_bytes > 4096 AND o.id <> f.id
                          AND (job.library_id IS NULL OR job.library_id IN (f.library_id, o.library_id)))
           WHEN job.library_id IS NULL OR f.library_id = job.library_id THEN
               EXISTS (SELECT FROM dedup.library_files o WHERE o.size_bytes = f.size_bytes AND NOT o.is_missing AND o.id <> f.id)
           ELSE
               EXISTS (SELECT FROM dedup.library_files o
                        WHERE o.size_bytes = f.size_bytes AND o.library_id = job.library_id AND NOT o.is_missing AND o.id <> f.id)
           END
     ORDER BY f.id;
END $$;

-- What was found out about files of a batch: a hash, the hash of a beginning, or why neither. A file that is not as it was when
-- it was read is left as it stands: the hash is of something else.
CREATE OR REPLACE FUNCTION dedup.record_hashes(
    p_lead bigint, p_claim uuid, p_algorithm text, p_ids bigint[], p_sizes bigint[], p_mtimes bigint[], p_inodes bigint[],
    p_hashes bytea[], p_prefixes bytea[], p_codes text[])
RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
-- a look into the index for each file given: whatever the planner believes, an array is longer than it thinks
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    lead     dedup.library_files := dedup.claimed_batch(p_lead, p_claim);
    recorded integer;
BEGIN
    UPDATE dedup.library_files f
       SET needs_hash = f.needs_hash AND g.hash IS NULL,
           hash_algorithm = CASE WHEN g.hash IS NULL THEN f.hash_algorithm ELSE p_algorithm END,
           content_hash = coalesce(g.hash, f.content_hash),
           hashed_size = CASE WHEN g.hash IS NULL THEN f.hashed_size ELSE g.size END,
           hashed_mtime_ns = CASE WHEN g.hash IS NULL THEN f.hashed_mtime_ns ELSE g.mtime END,
           hashed_at = CASE WHEN g.hash IS NULL THEN f.hashed_at ELSE now() END,
           prefix_hash = coalesce(g.prefix, f.prefix_hash),
           hash_error_code = g.code,
           hash_error_message = CASE WHEN g.code IS NOT NULL THEN 'it could not be hashed as the scan saw it' END,
           hash_error_count = CASE WHEN g.code IS NULL THEN 0 ELSE f.hash_error_count + 1 END,
           hash_retry_after = CASE WHEN g.code IS NOT NULL THEN
               now() + least(3600, 30 * 2.0 ^ least(f.hash_error_count, 20)) * interval '1 second' END
      FROM unnest(p_ids, p_sizes, p_mtimes, p_inodes, p_hashes, p_prefixes, p_codes)
           AS g (id, size, mtime, inode, hash, prefix, code)
     WHERE f.id = g.id AND g.id BETWEEN lead.id AND lead.hash_until
       AND f.size_bytes = g.size AND f.mtime_ns = g.mtime AND f.inode IS NOT DISTINCT FROM g.inode AND NOT f.is_missing;
    GET DIAGNOSTICS recorded = ROW_COUNT;
    RETURN recorded;
END $$;

-- The leader's part: batches that wait for a job which is over are not hashed any more.
CREATE OR REPLACE FUNCTION dedup.drop_unwanted_hashes(p_epoch bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    dropped integer;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    IF NOT EXISTS (SELECT FROM dedup.library_files f WHERE f.hash_status = 'pending') THEN
        RETURN 0;
    END IF;
    UPDATE dedup.library_files f SET hash_status = 'idle'
     WHERE f.id = ANY (ARRAY(SELECT w.id FROM dedup.library_files w
            LEFT JOIN dedup.jobs j ON j.id = w.hash_job_id AND j.status IN ('pending', 'running', 'retryable')
            WHERE w.hash_status = 'pending' AND j.id IS NULL ORDER BY w.id LIMIT 5000 FOR UPDATE OF w SKIP LOCKED));
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;
