-- Checkpoints of the write-ahead log on request.
CREATE OR REPLACE FUNCTION dedup.request_checkpoint(
    p_actor text, p_mode text, p_reason text, p_execute_after timestamptz) RETURNS SETOF dedup.wal_maintenance_jobs
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made   dedup.wal_maintenance_jobs;
    latest timestamptz;
BEGIN
    IF p_mode IS NULL OR p_mode NOT IN ('passive', 'restart', 'truncate') THEN
        RAISE EXCEPTION 'a checkpoint is passive, restart or truncate, not %', p_mode USING ERRCODE = 'TN022';
    END IF;
    IF NOT supervisor.in_calendar(p_execute_after) THEN
        RAISE EXCEPTION 'a checkpoint is due at a finite time in the years 1 to 9999' USING ERRCODE = 'TN022';
    END IF;
    IF p_mode = 'truncate' AND NOT (dedup.setting('dedup_allow_wal_truncate'))::boolean THEN
        RAISE EXCEPTION 'truncate is switched off (setting dedup_allow_wal_truncate)' USING ERRCODE = 'TN021';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('dedup.wal_maintenance_jobs', 0));
    SELECT max(w.created_at) INTO latest FROM dedup.wal_maintenance_jobs w WHERE w.status <> 'failed';
    IF latest > clock_timestamp() - make_interval(secs => (dedup.setting('dedup_wal_interval_seconds'))::double precision) THEN
        RAISE EXCEPTION 'a checkpoint was asked for at %; the next may be after dedup_wal_interval_seconds', latest
            USING ERRCODE = 'TN023';
    END IF;
    INSERT INTO dedup.wal_maintenance_jobs AS w (requested_mode, requested_by, reason, execute_after)
    VALUES (p_mode, p_actor, coalesce(p_reason, ''), coalesce(p_execute_after, clock_timestamp())) RETURNING w.* INTO made;
    PERFORM supervisor.note_audit(p_actor, 'wal.checkpoint', 'wal-job:' || made.id, NULL, to_jsonb(made));
    PERFORM pg_notify('tenure', 'lease:dedup.wal_maintenance_jobs');
    RETURN NEXT made;
END $$;
