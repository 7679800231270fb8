-- Libraries and jobs: what people, schedules and the leader ask for.

CREATE OR REPLACE FUNCTION dedup.add_library(p_actor text, p_name text, p_root_path text)
RETURNS SETOF dedup.library_roots
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made dedup.library_roots;
BEGIN
    IF coalesce(p_name, '') !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$' THEN
        RAISE EXCEPTION 'a library name has letters, digits, ".", "_" and "-", at most 63' USING ERRCODE = 'TN022';
    END IF;
    -- one library inside another would hold every file twice
    PERFORM pg_advisory_xact_lock(hashtextextended('dedup.library_roots', 0));
    SELECT l.* INTO made FROM dedup.library_roots l WHERE l.name = p_name OR l.root_path = p_root_path
        OR starts_with(l.root_path || '/', p_root_path || '/') OR starts_with(p_root_path || '/', l.root_path || '/') LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'library % at % is in the way', made.name, made.root_path USING ERRCODE = 'TN021';
    END IF;
    INSERT INTO dedup.library_roots AS l (name, root_path) VALUES (p_name, p_root_path) RETURNING l.* INTO made;
    PERFORM supervisor.note_audit(p_actor, 'library.add', 'library:' || p_name, NULL, to_jsonb(made));
    RETURN NEXT made;
END $$;

-- What is known of its files, a part at a time: all of it at once could take longer than a statement may. 0 = no more.
CREATE OR REPLACE FUNCTION dedup.empty_library(p_name text, p_limit integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    library bigint;
    removed integer;
BEGIN
    SELECT l.id INTO library FROM dedup.library_roots l WHERE l.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no library %', p_name USING ERRCODE = 'TN020';
    END IF;
    IF EXISTS (SELECT FROM dedup.jobs j WHERE j.library_id = library AND j.status IN ('pending', 'running')) THEN
        RAISE EXCEPTION 'library % has jobs that have not ended', p_name USING ERRCODE = 'TN021';
    END IF;
    DELETE FROM dedup.library_files f WHERE f.id = ANY (ARRAY(
        SELECT w.id FROM dedup.library_files w WHERE w.library_id = library ORDER BY w.relative_path LIMIT p_limit));
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;

-- Files and jobs go with it, the originals stay where they are.
CREATE OR REPLACE FUNCTION dedup.remove_library(p_actor text, p_name text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was dedup.library_roots;
BEGIN
    SELECT l.* INTO was FROM dedup.library_roots l WHERE l.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no library %', p_name USING ERRCODE = 'TN020';
    END IF;
    IF EXISTS (SELECT FROM dedup.jobs j WHERE j.library_id = was.id AND j.status IN ('pending', 'running')) THEN
        RAISE EXCEPTION 'library % has jobs that have not ended', p_name USING ERRCODE = 'TN021';
    END IF;
    DELETE FROM dedup.library_roots l WHERE l.id = was.id;
    PERFORM supervisor.note_audit(p_actor, 'library.remove', 'library:' || p_name, to_jsonb(was), NULL);
    RETURN was.id;
END $$;

-- What a worker will read of the payload; what it does not know it leaves alone.
CREATE OR REPLACE FUNCTION dedup.check_payload(p_kind text, p_payload jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad text;
BEGIN
    SELECT r.name INTO bad FROM (VALUES
        ('hash', 'algorithm', '["blake3", "sha256", null]'::jsonb @> (p_payload -> 'algorithm')),
        ('hash', 'mode', '["all", "duplicates", null]'::jsonb @> (p_payload -> 'mode')),
        ('scan', 'allow_empty', '[true, false, null]'::jsonb @> (p_payload -> 'allow_empty')),
        ('thumbnail', 'format', '["jpeg", "webp", null]'::jsonb @> (p_payload -> 'format')),
        ('thumbnail', 'max_dimension', CASE jsonb_typeof(p_payload -> 'max_dimension') WHEN 'null' THEN true
            WHEN 'number' THEN (p_payload ->> 'max_dimension')::numeric IN (SELECT generate_series(16, 2048)) ELSE false END)
    ) AS r (kind, name, holds) WHERE r.kind = p_kind AND p_payload ? r.name AND NOT r.holds LIMIT 1;
    IF bad IS NOT NULL OR jsonb_typeof(p_payload) <> 'object' THEN
        RAISE EXCEPTION 'the payload of a % cannot be understood: %', p_kind, coalesce(bad, 'it is no object')
            USING ERRCODE = 'TN022';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION dedup.make_job(
    p_actor text, p_kind text, p_library text, p_payload jsonb, p_dry_run boolean, p_run_id bigint)
RETURNS dedup.jobs
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    library bigint;
    made    dedup.jobs;
    holder  uuid;
BEGIN
    IF p_kind IS NULL OR p_kind NOT IN ('scan', 'hash', 'delete', 'thumbnail') THEN
        RAISE EXCEPTION 'a job scans, hashes, deletes or makes thumbnails, not %', p_kind USING ERRCODE = 'TN022';
    END IF;
    PERFORM dedup.check_payload(p_kind, p_payload);
    IF p_library IS NOT NULL THEN
        SELECT l.id INTO library FROM dedup.library_roots l WHERE l.name = p_library FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'no library %', p_library USING ERRCODE = 'TN020';
        END IF;
    ELSIF p_kind IN ('scan', 'thumbnail') THEN
        RAISE EXCEPTION 'a % is of one library: name it', p_kind USING ERRCODE = 'TN022';
    END IF;
    IF NOT p_dry_run AND p_kind = 'delete' AND NOT (dedup.setting('dedup_allow_real_delete'))::boolean THEN
        RAISE EXCEPTION 'real deletion is switched off (setting dedup_allow_real_delete)' USING ERRCODE = 'TN021';
    END IF;
    BEGIN
        INSERT INTO dedup.jobs AS j (kind, library_id, payload, dry_run, requested_by, run_id)
        VALUES (p_kind, library, p_payload, p_dry_run, p_actor, p_run_id) RETURNING j.* INTO made;
    EXCEPTION WHEN unique_violation THEN
        IF p_run_id IS NOT NULL THEN
            SELECT j.* INTO made FROM dedup.jobs j
             WHERE j.run_id = p_run_id AND j.kind = p_kind AND j.library_id IS NOT DISTINCT FROM library
               AND j.status NOT IN ('failed', 'cancelled');
        END IF;
        IF made.id IS NULL THEN
            SELECT j.id INTO holder FROM dedup.jobs j
             WHERE lower(j.status) IN ('pending', 'running') AND lower(j.kind) IN ('scan', 'hash');
            RAISE EXCEPTION 'job % is active: one scan or hash at a time', holder USING ERRCODE = 'TN021';
        END IF;
    END;
    PERFORM pg_notify('tenure', 'lease:dedup.jobs');
    RETURN made;
END $$;

CREATE OR REPLACE FUNCTION dedup.request_job(p_actor text, p_kind text, p_library text, p_payload jsonb, p_dry_run boolean)
RETURNS SETOF dedup.jobs
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made dedup.jobs;
BEGIN
    IF p_kind = 'delete' THEN
        RAISE EXCEPTION 'a deletion is requested by its group' USING ERRCODE = 'TN022';
    END IF;
    made := dedup.make_job(p_actor, p_kind, p_library, coalesce(p_payload, '{}'), coalesce(p_dry_run, true), NULL);
    PERFORM supervisor.note_audit(p_actor, 'dedup.' || p_kind, 'dedup-job:' || made.id, NULL,
        jsonb_build_object('library', p_library, 'payload', made.payload, 'dry_run', made.dry_run));
    RETURN NEXT made;
END $$;

-- A run asks for its part, under its own claim; asked again it gets the same job. TN021: the mutex is taken just now.
CREATE OR REPLACE FUNCTION dedup.request_for_run(p_run_id bigint, p_claim uuid, p_kind text, p_library text, p_payload jsonb)
RETURNS SETOF dedup.jobs
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    root bigint;
BEGIN
    SELECT r.root_id INTO root FROM supervisor.job_run r
     WHERE r.id = p_run_id AND r.claim_id = p_claim AND r.state = 'RUNNING' FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run % is not running under this claim', p_run_id USING ERRCODE = 'TN021';
    END IF;
    IF p_kind NOT IN ('scan', 'hash', 'thumbnail') THEN
        RAISE EXCEPTION 'a run asks for scans, hashes and thumbnails' USING ERRCODE = 'TN022';
    END IF;
    -- the root, not the run: the next attempt finds what this one began
    RETURN NEXT dedup.make_job('run:' || p_run_id, p_kind, p_library, coalesce(p_payload, '{}'), true, root);
END $$;

CREATE OR REPLACE FUNCTION dedup.cancel_job(p_actor text, p_job uuid) RETURNS SETOF dedup.jobs
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was  dedup.jobs;
    done dedup.jobs;
BEGIN
    SELECT j.* INTO was FROM dedup.jobs j WHERE j.id = p_job FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no job %', p_job USING ERRCODE = 'TN020';
    END IF;
    IF was.status IN ('completed', 'failed', 'cancelled') THEN
        RAISE EXCEPTION 'job % has ended as %', p_job, was.status USING ERRCODE = 'TN021';
    END IF;
    -- the worker's next heartbeat finds the row no longer running, and stops
    UPDATE dedup.jobs j SET status = 'cancelled', error_code = 'CANCELLED', error_message = 'cancelled by ' || p_actor,
        lease_expires_at = NULL, finished_at = clock_timestamp(), updated_at = clock_timestamp()
     WHERE j.id = p_job RETURNING j.* INTO done;
    PERFORM supervisor.note_audit(p_actor, 'dedup.cancel', 'dedup-job:' || p_job,
        jsonb_build_object('status', was.status), jsonb_build_object('status', done.status));
    RETURN NEXT done;
END $$;

CREATE OR REPLACE FUNCTION dedup.reset_job(p_actor text, p_job uuid) RETURNS SETOF dedup.jobs
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was dedup.jobs;
BEGIN
    SELECT j.* INTO was FROM dedup.jobs j WHERE j.id = p_job FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no job %', p_job USING ERRCODE = 'TN020';
    END IF;
    IF was.status <> 'retryable' THEN
        RAISE EXCEPTION 'job % is %: only a retryable one is reset', p_job, was.status USING ERRCODE = 'TN021';
    END IF;
    BEGIN
        UPDATE dedup.jobs j SET status = 'pending', updated_at = clock_timestamp() WHERE j.id = p_job RETURNING j.* INTO was;
    EXCEPTION WHEN unique_violation THEN
        RAISE EXCEPTION 'another scan or hash is active' USING ERRCODE = 'TN021';
    END;
    PERFORM supervisor.note_audit(p_actor, 'dedup.reset', 'dedup-job:' || p_job,
        jsonb_build_object('status', 'retryable'), jsonb_build_object('status', 'pending'));
    PERFORM pg_notify('tenure', 'lease:dedup.jobs');
    RETURN NEXT was;
END $$;

-- Who works over HTTP, for the audit: the row of the job has the worker's own name only. Before the claim is told, and before
-- the end is recorded: nobody works without it.
CREATE OR REPLACE FUNCTION dedup.note_work(p_actor text, p_what text, p_job uuid, p_facts jsonb) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT supervisor.note_audit(p_actor, 'dedup.' || p_what, 'dedup-job:' || p_job, NULL, p_facts)
$$;

-- The leader's part: what is due again goes back, the oldest first and one at a time; what was tried too often ends.
CREATE OR REPLACE FUNCTION dedup.return_retryable(p_epoch bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    due   dedup.jobs;
    count integer := 0;
    most  integer := (dedup.setting('dedup_job_retries'))::integer;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    FOR due IN SELECT j.* FROM dedup.jobs j WHERE j.status = 'retryable' AND j.retry_after <= clock_timestamp()
                ORDER BY j.retry_after, j.id LIMIT 100 FOR UPDATE SKIP LOCKED LOOP
        IF due.retry_count > most THEN
            UPDATE dedup.jobs j SET status = 'failed', error_code = 'RETRIES_EXHAUSTED', finished_at = clock_timestamp(),
                error_message = format('tried %s times; the last error was %s', due.retry_count, due.error_code),
                updated_at = clock_timestamp() WHERE j.id = due.id;
        ELSIF due.kind NOT IN ('scan', 'hash') OR NOT EXISTS (SELECT FROM dedup.jobs j
                WHERE lower(j.status) IN ('pending', 'running') AND lower(j.kind) IN ('scan', 'hash')) THEN
            BEGIN
                UPDATE dedup.jobs j SET status = 'pending', updated_at = clock_timestamp() WHERE j.id = due.id;
                count := count + 1;
            EXCEPTION WHEN unique_violation THEN
                NULL;  -- another became active meanwhile; the next tick looks again
            END;
        END IF;
    END LOOP;
    IF count > 0 THEN
        PERFORM pg_notify('tenure', 'lease:dedup.jobs');
    END IF;
    RETURN count;
END $$;

-- A run that was asked to stop takes its jobs along. A lost, drained or timed-out attempt does not: the next one goes on with them.
CREATE OR REPLACE FUNCTION dedup.cancel_for_run(p_run_id bigint, p_claim uuid) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    root      bigint;
    cancelled integer;
BEGIN
    SELECT r.root_id INTO root FROM supervisor.job_run r
     WHERE r.id = p_run_id AND r.claim_id = p_claim AND r.state = 'RUNNING' AND r.cancel_requested_at IS NOT NULL FOR SHARE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    UPDATE dedup.jobs j SET status = 'cancelled', error_code = 'CANCELLED', error_message = 'its run was cancelled',
        lease_expires_at = NULL, finished_at = clock_timestamp(), updated_at = clock_timestamp()
     WHERE j.run_id = root AND j.status IN ('pending', 'running', 'retryable');
    GET DIAGNOSTICS cancelled = ROW_COUNT;
    RETURN cancelled;
END $$;

-- The leader's part: where no handler was there to do that.
CREATE OR REPLACE FUNCTION dedup.cancel_for_ended_runs(p_epoch bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    cancelled integer;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    UPDATE dedup.jobs j SET status = 'cancelled', error_code = 'CANCELLED', error_message = 'its run was cancelled',
        lease_expires_at = NULL, finished_at = clock_timestamp(), updated_at = clock_timestamp()
     WHERE j.status IN ('pending', 'running', 'retryable') AND j.run_id IS NOT NULL
       AND EXISTS (SELECT FROM supervisor.job_run r WHERE r.root_id = j.run_id AND r.state = 'CANCELED')
       AND NOT EXISTS (SELECT FROM supervisor.job_run r WHERE r.root_id = j.run_id
                          AND (r.state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED') OR r.retry_at IS NOT NULL AND r.next_attempt_id IS NULL));
    GET DIAGNOSTICS cancelled = ROW_COUNT;
    RETURN cancelled;
END $$;
