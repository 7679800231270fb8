-- Retention: log bodies go to the artifact store, and what is over goes for good. Everything is done in bounded steps
-- that wait for nobody (SKIP LOCKED). Retention believes the database's clock; what is live or still owed is kept
-- whatever the clock says.

CREATE OR REPLACE FUNCTION supervisor.kept_since(p_setting text) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT clock_timestamp() - make_interval(secs => 86400 * s.value::text::double precision)
    FROM supervisor.setting s WHERE s.name = p_setting
$$;

-- Logs whose time in the database is over, in the order of their first lines, from a place on: one that cannot be
-- moved does not hold up those behind it.
CREATE OR REPLACE FUNCTION supervisor.read_unarchived(p_after_at timestamptz, p_after_run_id bigint, p_limit integer)
RETURNS TABLE (run_id bigint, at timestamptz, finished_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    kept_since timestamptz := supervisor.kept_since('log_retention_days_db');
BEGIN
    RETURN QUERY SELECT l.run_id, l.at, r.finished_at
    FROM supervisor.job_run_log l JOIN supervisor.job_run r ON r.id = l.run_id
    WHERE l.seq = 0 AND l.at < kept_since AND (l.at, l.run_id) > (p_after_at, p_after_run_id)
      AND r.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED') AND r.finished_at < kept_since
      AND r.log_ref IS NULL
    ORDER BY l.at, l.run_id LIMIT p_limit;
END $$;

-- The bodies go exactly when they are what was archived, together with the reference to it. RECORDED, ALREADY (a
-- repeated call), SUPERSEDED (archived under another name), CHANGED (lines came or went meanwhile), GONE (no such run).
CREATE OR REPLACE FUNCTION supervisor.archive_log(
    p_epoch bigint, p_run_id bigint, p_log_ref text, p_lines bigint, p_bytes bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    run    record;
    lines  bigint;
    bytes  bigint;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    IF p_log_ref IS NULL OR length(p_log_ref) NOT BETWEEN 1 AND 2000 OR p_lines IS NULL OR p_lines < 1 THEN
        RAISE EXCEPTION 'a log has lines, and an archived one a reference' USING ERRCODE = 'TN022';
    END IF;
    SELECT r.state, r.log_ref INTO run FROM supervisor.job_run r WHERE r.id = p_run_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'GONE';
    END IF;
    IF run.log_ref IS NOT NULL THEN
        RETURN CASE WHEN run.log_ref = p_log_ref THEN 'ALREADY' ELSE 'SUPERSEDED' END;
    END IF;
    IF run.state NOT IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED') THEN
        RETURN 'CHANGED';
    END IF;
    -- counted by the deleting statement itself: a line that comes between two statements would be deleted unseen
    BEGIN
        WITH gone AS (
            DELETE FROM supervisor.job_run_log l WHERE l.run_id = p_run_id RETURNING octet_length(l.body) AS bytes)
        SELECT count(*), coalesce(sum(gone.bytes), 0) INTO lines, bytes FROM gone;
        IF (lines, bytes) IS DISTINCT FROM (p_lines, p_bytes) THEN
            RAISE EXCEPTION 'not what was archived' USING ERRCODE = 'TN021';
        END IF;
    EXCEPTION WHEN SQLSTATE 'TN021' THEN
        RETURN 'CHANGED';
    END;
    UPDATE supervisor.job_run r SET log_ref = p_log_ref WHERE r.id = p_run_id;
    RETURN 'RECORDED';
END $$;

-- Whole roots that ended before p_before, with all that belongs to them. The newest row of a root is locked first: a
-- new attempt or a request for one needs the same lock, so after it the root is either kept or still finished.
CREATE OR REPLACE FUNCTION supervisor.prune_runs(p_before timestamptz, p_limit integer)
RETURNS TABLE (roots bigint, runs bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    newest bigint[];
    locked bigint[];
    chosen bigint[];
    silent timestamptz := clock_timestamp() - interval '1 day';
    was    text := coalesce(current_setting('tenure.retention', true), '');
BEGIN
    SELECT array_agg(o.root_id) INTO newest FROM (
        SELECT r.root_id FROM supervisor.job_run r
        WHERE r.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED') AND r.next_attempt_id IS NULL
          AND r.retry_at IS NULL AND r.finished_at < p_before
          AND NOT EXISTS (SELECT FROM supervisor.retry_request q WHERE q.run_id = r.id)
          AND (r.started_at IS NULL OR r.executor_stopped_at IS NOT NULL OR NOT EXISTS (
               SELECT FROM supervisor.worker w
               WHERE w.worker_id = r.assigned_worker_id AND w.heartbeat_at > silent))
        ORDER BY r.finished_at LIMIT p_limit FOR UPDATE SKIP LOCKED) o;
    IF newest IS NULL THEN
        RETURN QUERY SELECT 0::bigint, 0::bigint;
        RETURN;
    END IF;
    SELECT array_agg(o.id) INTO locked FROM (
        SELECT r.id FROM supervisor.job_run r WHERE r.root_id = ANY (newest) FOR UPDATE SKIP LOCKED) o;
    -- with the locks held, look again: at every row of each root
    SELECT array_agg(o.root_id) INTO chosen FROM (
        SELECT r.root_id FROM supervisor.job_run r WHERE r.root_id = ANY (newest)
        GROUP BY r.root_id
        HAVING bool_and(r.id IN (SELECT unnest(locked))
            AND r.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED') AND r.finished_at < p_before
            AND (r.retry_at IS NULL OR r.next_attempt_id IS NOT NULL)
            AND NOT EXISTS (SELECT FROM supervisor.retry_request q WHERE q.run_id = r.id)
            -- an executor that never said it stopped: its worker has been silent, or gone, for a day
            AND (r.started_at IS NULL OR r.executor_stopped_at IS NOT NULL OR NOT EXISTS (
                SELECT FROM supervisor.worker w
                WHERE w.worker_id = r.assigned_worker_id AND w.heartbeat_at > silent)))) o;
    SELECT array_agg(r.id) INTO locked FROM supervisor.job_run r WHERE r.root_id = ANY (chosen);

    PERFORM set_config('tenure.retention', 'on', true);
    INSERT INTO supervisor.discarded_artifact (uri)
        SELECT r.log_ref FROM supervisor.job_run r WHERE r.id = ANY (locked) AND r.log_ref IS NOT NULL;
    DELETE FROM supervisor.job_run_log l WHERE l.run_id = ANY (locked);
    DELETE FROM supervisor.late_finish f WHERE f.run_id = ANY (locked);
    DELETE FROM supervisor.job_run_history h WHERE h.run_id = ANY (locked);
    DELETE FROM supervisor.job_run r WHERE r.id = ANY (locked);
    PERFORM set_config('tenure.retention', was, true);
    RETURN QUERY SELECT coalesce(cardinality(chosen), 0)::bigint, coalesce(cardinality(locked), 0)::bigint;
END $$;

-- Replicas that have not been heard for long, and that no run needs to know any more.
CREATE OR REPLACE FUNCTION supervisor.prune_workers(p_before timestamptz, p_limit integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
    silent  text[];
    removed bigint;
BEGIN
    SELECT array_agg(o.worker_id) INTO silent FROM (
        SELECT w.worker_id FROM supervisor.worker w WHERE w.heartbeat_at < p_before
        ORDER BY w.worker_id LIMIT p_limit FOR UPDATE SKIP LOCKED) o;
    -- an assignment locks the worker's row first: what this statement does not see cannot come any more
    DELETE FROM supervisor.worker w WHERE w.worker_id = ANY (silent)
        AND NOT EXISTS (SELECT FROM supervisor.job_run r
            WHERE r.assigned_worker_id = w.worker_id AND r.state IN ('ASSIGNED', 'RUNNING'))
        AND NOT EXISTS (SELECT FROM supervisor.job_run r
            WHERE r.assigned_worker_id = w.worker_id AND r.state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED')
              AND r.started_at IS NOT NULL AND r.executor_stopped_at IS NULL);
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;

-- Records that stand alone, and what came in for a run after it was pruned.
CREATE OR REPLACE FUNCTION supervisor.prune_records(p_limit integer) RETURNS TABLE (what text, removed bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    count      bigint;
    runs_since timestamptz := supervisor.kept_since('run_retention_days');
    was        text := coalesce(current_setting('tenure.retention', true), '');
BEGIN
    DELETE FROM supervisor.event e WHERE e.id IN (
        SELECT o.id FROM supervisor.event o WHERE o.processed_at < supervisor.kept_since('event_retention_days')
        ORDER BY o.processed_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS count = ROW_COUNT;
    RETURN QUERY SELECT 'events', count;

    DELETE FROM supervisor.skipped_fire f WHERE f.id IN (
        SELECT o.id FROM supervisor.skipped_fire o WHERE o.at < supervisor.kept_since('skipped_retention_days')
        ORDER BY o.at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS count = ROW_COUNT;
    RETURN QUERY SELECT 'skipped', count;

    PERFORM set_config('tenure.retention', 'on', true);
    DELETE FROM supervisor.audit a WHERE a.id IN (
        SELECT o.id FROM supervisor.audit o WHERE o.at < supervisor.kept_since('audit_retention_days')
        ORDER BY o.at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS count = ROW_COUNT;
    PERFORM set_config('tenure.retention', was, true);
    RETURN QUERY SELECT 'audit', count;

    DELETE FROM supervisor.late_finish f WHERE f.claim_id IN (
        SELECT o.claim_id FROM supervisor.late_finish o WHERE o.at < runs_since
          AND NOT EXISTS (SELECT FROM supervisor.job_run r WHERE r.id = o.run_id)
        ORDER BY o.at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS count = ROW_COUNT;
    RETURN QUERY SELECT 'late_finishes', count;

    DELETE FROM supervisor.job_run_log l WHERE l.run_id IN (
        SELECT o.run_id FROM supervisor.job_run_log o WHERE o.seq = 0 AND o.at < runs_since
          AND NOT EXISTS (SELECT FROM supervisor.job_run r WHERE r.id = o.run_id)
        ORDER BY o.at LIMIT p_limit);
    GET DIAGNOSTICS count = ROW_COUNT;
    RETURN QUERY SELECT 'log_lines', count;
END $$;

-- One bounded step over everything, by the settings. For the owner; the leader's way is prune_step.
CREATE OR REPLACE FUNCTION supervisor.prune(p_limit integer DEFAULT 1000) RETURNS TABLE (what text, removed bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    gone record;
BEGIN
    IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'a step removes between 1 and 10000 of each' USING ERRCODE = 'TN022';
    END IF;
    RETURN QUERY SELECT 'workers', supervisor.prune_workers(supervisor.kept_since('worker_retention_days'), p_limit);
    SELECT p.roots, p.runs INTO gone FROM supervisor.prune_runs(supervisor.kept_since('run_retention_days'), p_limit) p;
    RETURN QUERY SELECT 'roots', gone.roots;
    RETURN QUERY SELECT 'runs', gone.runs;
    RETURN QUERY SELECT r.what, r.removed FROM supervisor.prune_records(p_limit) r;
END $$;

CREATE OR REPLACE FUNCTION supervisor.prune_step(p_epoch bigint, p_limit integer)
RETURNS TABLE (what text, removed bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM supervisor.fence(p_epoch);
    RETURN QUERY SELECT p.what, p.removed FROM supervisor.prune(p_limit) p;
END $$;

-- Months of the history that are past and empty. Dropping one needs the whole table for a moment: tried briefly, so that
-- moves wait a twentieth of a second at most, and left for another day when the table is busy.
CREATE OR REPLACE FUNCTION supervisor.drop_partitions(p_epoch bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    part    record;
    kept    boolean;
    dropped integer := 0;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    FOR part IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'supervisor.job_run_history'::regclass AND c.relname ~ '^job_run_history_[0-9]{6}$'
          AND to_date(right(c.relname, 6), 'YYYYMM') + interval '1 month 1 day' < clock_timestamp() AT TIME ZONE 'UTC'
        ORDER BY c.relname LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM supervisor.%I)', part.relname) INTO kept;
        CONTINUE WHEN kept;
        BEGIN
            LOCK TABLE supervisor.job_run_history IN ACCESS EXCLUSIVE MODE;
            EXECUTE format('SELECT EXISTS (SELECT FROM supervisor.%I)', part.relname) INTO kept;
            IF NOT kept THEN
                EXECUTE format('DROP TABLE supervisor.%I', part.relname);
                dropped := dropped + 1;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            RETURN dropped;
        END;
    END LOOP;
    RETURN dropped;
END $$;

-- The artifact is gone, or was gone already.
CREATE OR REPLACE FUNCTION supervisor.forget_discarded(p_epoch bigint, p_ids bigint[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    removed integer;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    DELETE FROM supervisor.discarded_artifact d WHERE d.id = ANY (p_ids);
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;

REVOKE ALL ON FUNCTION
    supervisor.kept_since(text),
    supervisor.read_unarchived(timestamptz, bigint, integer),
    supervisor.archive_log(bigint, bigint, text, bigint, bigint),
    supervisor.prune_runs(timestamptz, integer),
    supervisor.prune_workers(timestamptz, integer),
    supervisor.prune_records(integer),
    supervisor.prune(integer),
    supervisor.prune_step(bigint, integer),
    supervisor.drop_partitions(bigint),
    supervisor.forget_discarded(bigint, bigint[])
    FROM PUBLIC, tenure_control, tenure_worker, tenure_maintenance, tenure_console, tenure_client;
GRANT SELECT ON supervisor.discarded_artifact TO tenure_control;
GRANT EXECUTE ON FUNCTION
    supervisor.read_unarchived(timestamptz, bigint, integer),
    supervisor.archive_log(bigint, bigint, text, bigint, bigint),
    supervisor.prune_step(bigint, integer),
    supervisor.drop_partitions(bigint),
    supervisor.forget_discarded(bigint, bigint[])
    TO tenure_control;
