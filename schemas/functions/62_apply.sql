-- Definitions as a file says: all of it or nothing, in the caller's one statement. `specs` maps names to their fields
-- (a new one takes the defaults for what is not named); what is as wanted already is left alone and leaves no audit.
-- `seen` maps the names it is about to when each was changed last, in microseconds: what was shown is what is done.
CREATE OR REPLACE FUNCTION supervisor.apply_jobs(p_actor text, p_specs jsonb, p_prune boolean, p_seen jsonb DEFAULT NULL)
RETURNS TABLE (name text, what text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    job    record;
    found  jsonb;
    fixed  text[] := '{id,name,created_at,updated_at,removed_at,fired_until,next_fire_at,schedule_error,takes}';
BEGIN
    IF jsonb_typeof(p_specs) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'the jobs must be an object of names' USING ERRCODE = 'TN022';
    END IF;
    -- one after another; 'apply' in ASCII
    PERFORM pg_advisory_xact_lock(418565810297);
    PERFORM FROM supervisor.job_definition d
        WHERE d.removed_at IS NULL AND CASE WHEN p_specs ? d.name
            THEN jsonb_populate_record(d, (p_specs -> d.name) - fixed) IS DISTINCT FROM d ELSE p_prune END
        ORDER BY d.id FOR UPDATE;
    IF p_seen IS NOT NULL THEN
        SELECT coalesce(jsonb_object_agg(d.name, (extract(epoch FROM d.updated_at) * 1000000)::bigint), '{}') INTO found
            FROM supervisor.job_definition d WHERE d.removed_at IS NULL AND (p_prune OR p_specs ? d.name);
        IF found <> p_seen THEN
            RAISE EXCEPTION 'somebody changed these jobs meanwhile: look at the difference again'
                USING ERRCODE = 'TN021';
        END IF;
    END IF;
    FOR job IN SELECT s.key AS name, s.value AS spec, d.id IS NULL AS created
        FROM jsonb_each(p_specs) s
        LEFT JOIN supervisor.job_definition d ON d.name = s.key AND d.removed_at IS NULL
        WHERE d.id IS NULL OR jsonb_populate_record(d, s.value - fixed) IS DISTINCT FROM d
        ORDER BY s.key LOOP
        PERFORM supervisor.save_job(p_actor, job.name, job.spec, job.created);
        RETURN QUERY SELECT job.name, CASE WHEN job.created THEN 'added' ELSE 'changed' END;
    END LOOP;
    IF p_prune THEN
        FOR job IN SELECT d.name FROM supervisor.job_definition d
            WHERE d.removed_at IS NULL AND NOT p_specs ? d.name ORDER BY d.name LOOP
            PERFORM supervisor.remove_job(p_actor, job.name);
            RETURN QUERY SELECT job.name, 'removed';
        END LOOP;
    END IF;
END $$;
