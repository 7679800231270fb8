-- Quiesce: when the work of an earlier attempt has certainly stopped. p_silent_* as in 50_leader.sql.

-- Is the executor of an ended attempt certainly stopped? It never started, said so, or its worker was silent for D.
CREATE OR REPLACE FUNCTION supervisor.quiesced(
    p_run_id bigint, p_silent_workers text[], p_silent_seqs bigint[], p_stop_bound_seconds double precision)
RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
    SELECT r.started_at IS NULL OR r.executor_stopped_at IS NOT NULL OR (
        coalesce(supervisor.heard_at(w.heartbeat_at), r.started_at)
            + make_interval(secs => greatest(w.stop_bound_seconds, p_stop_bound_seconds)) <= clock_timestamp()
        AND (w.worker_id IS NULL OR EXISTS (
            SELECT FROM unnest(p_silent_workers, p_silent_seqs) AS s(worker_id, beat_seq)
            WHERE s.worker_id = w.worker_id AND s.beat_seq = w.beat_seq)))
    FROM supervisor.job_run r LEFT JOIN supervisor.worker w ON w.worker_id = r.assigned_worker_id
    WHERE r.id = p_run_id
$$;

-- All attempts of a root: the one before last may still be executing when the last was never started.
CREATE OR REPLACE FUNCTION supervisor.root_quiesced(
    p_root_id bigint, p_silent_workers text[], p_silent_seqs bigint[], p_stop_bound_seconds double precision)
RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
    SELECT NOT EXISTS (SELECT FROM supervisor.job_run r
        WHERE r.root_id = p_root_id AND r.started_at IS NOT NULL AND r.executor_stopped_at IS NULL
          AND NOT supervisor.quiesced(r.id, p_silent_workers, p_silent_seqs, p_stop_bound_seconds))
$$;
