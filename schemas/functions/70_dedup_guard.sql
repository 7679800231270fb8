-- What must never happen to the rows of this domain, refused whoever asks; and every move of a job written down.

CREATE OR REPLACE FUNCTION dedup.guard_job() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (NEW.id, NEW.kind, NEW.dry_run, NEW.payload, NEW.created_at) IS DISTINCT FROM
       (OLD.id, OLD.kind, OLD.dry_run, OLD.payload, OLD.created_at)
       OR NEW.library_id IS DISTINCT FROM OLD.library_id OR NEW.run_id IS DISTINCT FROM OLD.run_id THEN
        RAISE EXCEPTION 'job %: what it is never changes', OLD.id USING ERRCODE = 'TN013';
    END IF;
    IF OLD.status IN ('completed', 'failed', 'cancelled') AND NEW IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'job % has ended as %: it never changes again', OLD.id, OLD.status USING ERRCODE = 'TN010';
    END IF;
    IF NEW.status <> OLD.status THEN
        IF (OLD.status || '>' || NEW.status) NOT IN ('pending>running', 'pending>cancelled',
            'running>completed', 'running>failed', 'running>cancelled', 'running>retryable', 'running>pending',
            'retryable>pending', 'retryable>cancelled', 'retryable>failed') THEN
            RAISE EXCEPTION 'job %: % -> % is not a move', OLD.id, OLD.status, NEW.status USING ERRCODE = 'TN011';
        END IF;
        -- set here and not by the worker: when to try again is policy
        IF NEW.status = 'retryable' THEN
            NEW.retry_count := OLD.retry_count + 1;
            NEW.retry_after := clock_timestamp() + least(600, 2.0 ^ least(OLD.retry_count, 20)) * interval '1 second';
        ELSE
            NEW.retry_after := NULL;
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER guard BEFORE UPDATE ON dedup.jobs FOR EACH ROW EXECUTE FUNCTION dedup.guard_job();

CREATE OR REPLACE FUNCTION dedup.record_job() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO dedup.job_moves (job_id, to_status) SELECT n.id, n.status FROM new_rows n;
    ELSE
        INSERT INTO dedup.job_moves (job_id, from_status, to_status, worker_id, error_code)
        SELECT n.id, o.status, n.status, coalesce(n.worker_id, o.worker_id), n.error_code
          FROM new_rows n JOIN old_rows o ON o.id = n.id
         WHERE n.status <> o.status OR n.claim_id IS DISTINCT FROM o.claim_id AND n.claim_id IS NOT NULL;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER record_made AFTER INSERT ON dedup.jobs
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION dedup.record_job();
CREATE OR REPLACE TRIGGER record_moved AFTER UPDATE ON dedup.jobs
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION dedup.record_job();
CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE ON dedup.job_moves
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.refuse_rewrite();

-- they go with their job, not before it
CREATE OR REPLACE FUNCTION dedup.guard_moves() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM dedup.jobs j WHERE j.id = OLD.job_id) THEN
        RAISE EXCEPTION 'DELETE on dedup.job_moves is refused: it is only added to' USING ERRCODE = 'TN014';
    END IF;
    RETURN OLD;
END $$;
CREATE OR REPLACE TRIGGER kept_with_job BEFORE DELETE ON dedup.job_moves
    FOR EACH ROW EXECUTE FUNCTION dedup.guard_moves();

CREATE OR REPLACE FUNCTION dedup.guard_thumbnail() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- its file is known no more: it is not made or tried any more, and waits for its removal
    IF NEW.file_id IS NULL THEN
        OLD.file_id := NULL;
        NEW.group_key := 'removed';
        IF NEW.status = 'pending' AND OLD.status <> 'ready' THEN
            NEW.status := 'failed';
            NEW.error_code := 'THUMB_SOURCE_MISSING';
            OLD.status := 'failed';
        END IF;
        NEW.retry_after := NULL;
    END IF;
    IF (NEW.thumb_key, NEW.file_id, NEW.format, NEW.max_dimension, NEW.source_size, NEW.source_mtime_ns, NEW.output_relpath)
       IS DISTINCT FROM
       (OLD.thumb_key, OLD.file_id, OLD.format, OLD.max_dimension, OLD.source_size, OLD.source_mtime_ns, OLD.output_relpath)
    THEN
        RAISE EXCEPTION 'thumbnail %: what it is of never changes', OLD.thumb_key USING ERRCODE = 'TN013';
    END IF;
    IF NEW.status <> OLD.status AND (OLD.status || '>' || NEW.status) NOT IN
        ('pending>running', 'running>pending', 'running>ready', 'running>failed', 'failed>pending') THEN
        RAISE EXCEPTION 'thumbnail %: % -> % is not a move', OLD.thumb_key, OLD.status, NEW.status USING ERRCODE = 'TN011';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER guard BEFORE UPDATE ON dedup.thumbnails FOR EACH ROW EXECUTE FUNCTION dedup.guard_thumbnail();

-- Cleanups, checkpoints and batches of files, which are leased and leave no other trace of it: only the moves given to the trigger
-- pass, and a state without a way out has ended. A claim is new when the row begins to run, stays with what it did, and goes when the
-- row waits again. Times are now(), as in the statements of the lease.
CREATE OR REPLACE FUNCTION dedup.guard_lease() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was     text;
    becomes text;
    is_same boolean := NEW.id = OLD.id;
    is_live boolean := coalesce(OLD.lease_expires_at > now(), false);
    is_ours boolean := pg_has_role(current_user, 'tenure_owner', 'USAGE');
    fault   text;
BEGIN
    CASE TG_TABLE_NAME
    WHEN 'library_files' THEN
        was := OLD.hash_status;
        becomes := NEW.hash_status;
    WHEN 'thumbnail_cleanup_jobs' THEN
        was := OLD.status;
        becomes := NEW.status;
        is_same := is_same AND NEW.group_key = OLD.group_key;
    WHEN 'wal_maintenance_jobs' THEN
        was := OLD.status;
        becomes := NEW.status;
        is_same := is_same AND NEW.requested_mode = OLD.requested_mode;
    END CASE;
    IF NEW IS DISTINCT FROM OLD AND NOT EXISTS (SELECT FROM unnest(TG_ARGV) AS m WHERE starts_with(m, was || '>')) THEN
        RAISE EXCEPTION '% % has ended as %: it never changes again', TG_TABLE_NAME, OLD.id, was USING ERRCODE = 'TN010';
    END IF;
    IF becomes <> was AND NOT (was || '>' || becomes) = ANY (TG_ARGV) THEN
        RAISE EXCEPTION '% %: % -> % is not a move', TG_TABLE_NAME, OLD.id, was, becomes USING ERRCODE = 'TN011';
    END IF;

    fault := CASE
        WHEN NOT is_same THEN 'what it is never changes'
        WHEN becomes = 'running' AND was <> 'running' THEN
            CASE WHEN NEW.claim_id IS NULL OR NEW.claim_id IS NOT DISTINCT FROM OLD.claim_id OR NEW.worker_id IS NULL
                 OR coalesce(NEW.lease_expires_at <= now(), true) THEN 'it runs under a new claim, with an owner and an expiry' END
        WHEN was = 'running' AND becomes = 'running' THEN
            CASE WHEN NEW.claim_id IS DISTINCT FROM OLD.claim_id OR NEW.worker_id IS DISTINCT FROM OLD.worker_id
                 THEN 'it runs under another claim'
                 WHEN NOT is_live AND NEW.lease_expires_at > coalesce(OLD.lease_expires_at, '-infinity') THEN 'its lease has run out' END
        WHEN was <> 'running' AND NOT is_ours THEN 'nobody works on it: it is claimed first'
        WHEN NEW.claim_id IS NOT NULL AND (NEW.claim_id, NEW.worker_id) IS DISTINCT FROM (OLD.claim_id, OLD.worker_id)
            THEN 'a claim comes with the beginning of the work'
        -- taken back or given back; what was done keeps the claim it was done under
        WHEN was = 'running' AND NEW.claim_id IS NULL AND OLD.claim_id IS NOT NULL THEN
            CASE WHEN becomes NOT IN ('pending', 'retryable') THEN 'an outcome is that of its claim'
                 WHEN is_live AND (TG_TABLE_NAME = 'wal_maintenance_jobs'
                      OR NOT is_ours AND NOT pg_has_role(current_user, 'tenure_worker', 'USAGE')) THEN 'its lease has not run out' END
        END;
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION '% %: %', TG_TABLE_NAME, OLD.id, fault USING ERRCODE = 'TN013';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER guard BEFORE UPDATE ON dedup.thumbnail_cleanup_jobs FOR EACH ROW EXECUTE FUNCTION dedup.guard_lease(
    'pending>running', 'running>pending', 'running>completed', 'running>failed');
CREATE OR REPLACE TRIGGER guard BEFORE UPDATE ON dedup.wal_maintenance_jobs FOR EACH ROW EXECUTE FUNCTION dedup.guard_lease(
    'pending>running', 'retryable>running', 'running>retryable', 'running>completed', 'running>failed');
-- what the functions write beside the lease, file by file, is not looked at
CREATE OR REPLACE TRIGGER guard BEFORE UPDATE ON dedup.library_files FOR EACH ROW
    WHEN (current_user <> 'tenure_owner' OR NEW.hash_status <> OLD.hash_status OR NEW.claim_id IS DISTINCT FROM OLD.claim_id
        OR NEW.worker_id IS DISTINCT FROM OLD.worker_id OR NEW.lease_expires_at IS DISTINCT FROM OLD.lease_expires_at)
    EXECUTE FUNCTION dedup.guard_lease('idle>pending', 'pending>idle', 'pending>running', 'running>pending', 'running>idle');

-- the worker's name for the job, checked: the row is of this kind, runs under this claim, and its lease has not run out
CREATE OR REPLACE FUNCTION dedup.claimed_job(p_job uuid, p_claim uuid, p_kind text) RETURNS dedup.jobs
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job dedup.jobs;
BEGIN
    SELECT j.* INTO job FROM dedup.jobs j WHERE j.id = p_job FOR SHARE;
    IF job.id IS NULL OR job.status <> 'running' OR job.kind <> p_kind OR job.claim_id IS DISTINCT FROM p_claim
       OR coalesce(job.lease_expires_at <= clock_timestamp(), true) THEN
        RAISE EXCEPTION 'job % is no longer under this claim', p_job USING ERRCODE = 'TN021';
    END IF;
    RETURN job;
END $$;

CREATE OR REPLACE FUNCTION dedup.setting(p_name text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.value FROM supervisor.setting s WHERE s.name = p_name
$$;
