-- What must never happen to tasks and runs, refused whoever asks; and what follows from each move of a run.
-- Rows are locked in one order everywhere: the run, then its task. Whoever has the task already takes no run's lock by waiting.

CREATE OR REPLACE FUNCTION scm.guard_task() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (NEW.task_id, NEW.repo_id, NEW.source_type, NEW.created_at) IS DISTINCT FROM
       (OLD.task_id, OLD.repo_id, OLD.source_type, OLD.created_at) THEN
        RAISE EXCEPTION 'task %: what it is never changes', OLD.task_id USING ERRCODE = 'TN013';
    END IF;
    IF NEW.status <> OLD.status AND (OLD.status || '>' || NEW.status) NOT IN ('disabled>pending', 'pending>running',
        'running>pending', 'running>failed', 'failed>pending', 'pending>disabled', 'running>disabled', 'failed>disabled') THEN
        RAISE EXCEPTION 'task %: % -> % is not a move', OLD.task_id, OLD.status, NEW.status USING ERRCODE = 'TN011';
    END IF;
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER guard BEFORE UPDATE ON scm.sync_tasks FOR EACH ROW EXECUTE FUNCTION scm.guard_task();

-- The lease statements write what a contract can say; what only this table knows is filled in here.
CREATE OR REPLACE FUNCTION scm.guard_sync() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (NEW.run_id, NEW.task_id, NEW.source_type, NEW.mode, NEW.range_json, NEW.config_json, NEW.watermark_start, NEW.created_at, NEW.priority)
       IS DISTINCT FROM
       (OLD.run_id, OLD.task_id, OLD.source_type, OLD.mode, OLD.range_json, OLD.config_json, OLD.watermark_start, OLD.created_at, OLD.priority)
       OR NEW.requested_by_run IS DISTINCT FROM OLD.requested_by_run OR NEW.item_id IS DISTINCT FROM OLD.item_id THEN
        RAISE EXCEPTION 'sync %: what it is never changes', OLD.run_id USING ERRCODE = 'TN013';
    END IF;
    IF (OLD.status IN ('completed', 'exhausted', 'cancelled') OR OLD.status = 'failed' AND OLD.finished_at IS NOT NULL)
       AND NEW IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'sync % has ended as %: it never changes again', OLD.run_id, OLD.status USING ERRCODE = 'TN010';
    END IF;
    -- Given back by a worker that leaves: as if never begun, unless something of it is written already; then it goes on as a
    -- retry that is due at once and costs no attempt.
    IF OLD.status = 'running' AND NEW.status = 'pending' THEN
        NEW.attempts := OLD.attempts - 1;
        IF OLD.batches > 0 OR OLD.attempts > 1 THEN
            NEW.status := 'failed';
            NEW.error_code := 'DRAINED';
            NEW.error_message := 'its worker left';
            NEW.retry_after := clock_timestamp();
        END IF;
    END IF;
    IF (NEW.error_code, NEW.error_message) IS DISTINCT FROM (OLD.error_code, OLD.error_message)
       OR NEW.status = 'failed' AND OLD.status <> 'failed' THEN
        NEW.error_json := nullif(jsonb_strip_nulls(jsonb_build_object('code', NEW.error_code, 'message', NEW.error_message,
            'attempt', CASE WHEN NEW.error_code IS NOT NULL THEN OLD.attempts END, 'failures', OLD.error_json -> 'failures')), '{}');
    END IF;
    IF NEW.status = OLD.status THEN
        RETURN NEW;
    END IF;
    IF (OLD.status || '>' || NEW.status) NOT IN ('pending>running', 'running>completed', 'running>failed', 'running>pending',
        'failed>retrying', 'failed>exhausted', 'retrying>running', 'retrying>failed',
        'pending>cancelled', 'running>cancelled', 'retrying>cancelled', 'failed>cancelled') THEN
        RAISE EXCEPTION 'sync %: % -> % is not a move', OLD.run_id, OLD.status, NEW.status USING ERRCODE = 'TN011';
    END IF;

    NEW.updated_at := clock_timestamp();
    IF NEW.status IN ('completed', 'exhausted', 'cancelled') THEN
        NEW.finished_at := coalesce(NEW.finished_at, clock_timestamp());
    END IF;
    IF NEW.status = 'running' THEN
        -- when the run began, not its newest attempt
        NEW.started_at := CASE WHEN OLD.status = 'retrying' THEN OLD.started_at ELSE NEW.started_at END;
    ELSIF NEW.status = 'completed' THEN
        NEW.watermark_end := coalesce(NEW.watermark, nullif(NEW.watermark_start, 'null'));
    END IF;
    IF NEW.finished_at IS NOT NULL THEN
        -- one that was lost lasted as long as it was heard of
        NEW.stats_json := '{"fetched": 0, "inserted": 0, "updated": 0, "skipped": 0, "batches": 0}' || NEW.stats_json
            || jsonb_build_object('duration_ms', greatest(0, round(extract(epoch FROM
                CASE WHEN NEW.claim_id IS NULL THEN coalesce(OLD.worker_heartbeat_at, NEW.finished_at) ELSE NEW.finished_at END
                - NEW.started_at) * 1000))::bigint);
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER guard BEFORE UPDATE ON scm.sync_runs FOR EACH ROW EXECUTE FUNCTION scm.guard_sync();

CREATE OR REPLACE FUNCTION scm.milliseconds(p_span interval) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT greatest(0, round(extract(epoch FROM p_span) * 1000))::bigint
$$;

-- A failure that is not final is decided on at once: tried again or used up, a second move of the same transaction.
-- Then the task follows its run. A run lost with its worker is made again by the leader, from where the cursor stands.
CREATE OR REPLACE FUNCTION scm.follow_run() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lost   boolean := NEW.status = 'failed' AND NEW.claim_id IS NULL AND NEW.error_code IN ('LEASE_EXPIRED', 'WORKER_LOST');
    again  boolean;
    most   integer;
    task   scm.sync_tasks;
    repo   scm.repos;
BEGIN
    INSERT INTO scm.sync_run_moves (run_id, from_status, to_status, attempt, worker_id, error_code)
    VALUES (NEW.run_id, CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END, NEW.status, NEW.attempts,
        CASE WHEN TG_OP = 'UPDATE' THEN coalesce(NEW.worker_id, OLD.worker_id) END, NEW.error_code);
    IF NEW.item_id IS NOT NULL THEN
        PERFORM logbook.add_event(NEW.item_id, 'scm.sync.' || NEW.status, NEW.status, jsonb_strip_nulls(jsonb_build_object(
            'run_id', NEW.run_id, 'attempt', NEW.attempts, 'worker_id', NEW.worker_id, 'error', NEW.error_json,
            'watermark_end', NEW.watermark_end)));
    END IF;
    IF TG_OP = 'INSERT' THEN
        RETURN NULL;
    END IF;
    IF NEW.status = 'failed' AND NEW.finished_at IS NULL THEN
        UPDATE scm.sync_runs r SET status = CASE WHEN r.attempts < r.max_attempts THEN 'retrying' ELSE 'exhausted' END,
               retry_after = CASE WHEN r.attempts < r.max_attempts THEN coalesce(r.retry_after, clock_timestamp()) END
         WHERE r.run_id = NEW.run_id;
        RETURN NULL;
    END IF;

    most := (scm.setting('scm_failure_threshold'))::integer;
    -- what takes its worker along again and again, and gets nothing written, is no accident
    again := lost AND (NEW.batches > 0 OR NEW.losses + 1 < most);
    -- a task that somebody moved by hand takes the step that is missing, so that no claim is refused for it
    UPDATE scm.sync_tasks t SET status = CASE t.status WHEN 'failed' THEN 'pending' ELSE 'running' END
     WHERE t.task_id = NEW.task_id AND (t.status = 'failed' AND NEW.status = 'running'
        OR t.status = 'pending' AND NEW.status IN ('exhausted', 'failed') AND NOT again);
    UPDATE scm.sync_tasks t SET last_run_id = NEW.run_id,
           status = CASE
               WHEN t.status = 'disabled' THEN 'disabled'
               WHEN NEW.status = 'running' THEN 'running'
               WHEN NEW.status IN ('exhausted', 'failed') AND NOT again THEN
                   CASE WHEN t.consecutive_failures + 1 >= most THEN 'disabled' ELSE 'failed' END
               ELSE 'pending' END,
           consecutive_failures = CASE
               WHEN NEW.status = 'completed' THEN 0
               WHEN NEW.status IN ('exhausted', 'failed') AND NOT again THEN t.consecutive_failures + 1
               ELSE t.consecutive_failures END,
           next_run_at = CASE
               WHEN t.status = 'disabled' OR NEW.status IN ('running', 'pending', 'retrying') THEN NULL
               WHEN again THEN clock_timestamp()
               ELSE scm.next_instant(t.config_json) END
     WHERE t.task_id = NEW.task_id RETURNING t.* INTO task;
    IF task.status = 'disabled' AND NEW.status IN ('exhausted', 'failed') THEN
        SELECT r.* INTO repo FROM scm.repos r WHERE r.repo_id = task.repo_id;
        PERFORM scm.save_schedule('tenure', repo, task.source_type, NULL);
        PERFORM supervisor.note_audit('tenure', 'sync.disable', 'sync:' || repo.name || '/' || task.source_type, NULL,
            jsonb_build_object('status', 'disabled', 'consecutive_failures', task.consecutive_failures));
    END IF;
    -- also where there was nothing new: the cursor is as fresh as this look, and a lost one is there again
    IF NEW.status = 'completed' AND NEW.mode = 'incremental' AND NEW.watermark_end IS NOT NULL THEN
        PERFORM scm.save_cursor(task, NEW.watermark_end, NEW.run_id);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER follow_made AFTER INSERT ON scm.sync_runs FOR EACH ROW EXECUTE FUNCTION scm.follow_run();
CREATE OR REPLACE TRIGGER follow_moved AFTER UPDATE ON scm.sync_runs FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION scm.follow_run();
CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON scm.sync_run_moves
    FOR EACH ROW EXECUTE FUNCTION supervisor.refuse_rewrite();
CREATE OR REPLACE TRIGGER append_only_all BEFORE TRUNCATE ON scm.sync_run_moves
    FOR EACH STATEMENT EXECUTE FUNCTION supervisor.refuse_rewrite();

-- When a task runs by itself next: only one whose configuration says auto, and 0 means never.
CREATE OR REPLACE FUNCTION scm.next_instant(p_config jsonb) RETURNS timestamptz
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN coalesce((p_config ->> 'auto')::boolean, false) AND coalesce((p_config ->> 'interval_seconds')::integer, 300) > 0
        THEN clock_timestamp() + make_interval(secs => coalesce((p_config ->> 'interval_seconds')::integer, 300)) END
$$;

CREATE OR REPLACE FUNCTION scm.setting(p_name text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.value FROM supervisor.setting s WHERE s.name = p_name
$$;

-- The worker's name for the run, checked: it runs under this claim, and its lease has not run out. Nothing is locked:
-- whoever writes names the claim once more in its last statement.
CREATE OR REPLACE FUNCTION scm.claimed_run(p_run text, p_claim uuid) RETURNS scm.sync_runs
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run scm.sync_runs;
BEGIN
    SELECT r.* INTO run FROM scm.sync_runs r WHERE r.run_id = p_run AND r.claim_id = p_claim AND r.status = 'running'
        AND r.lease_expires_at > clock_timestamp();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'sync % is no longer under this claim', p_run USING ERRCODE = 'TN021';
    END IF;
    RETURN run;
END $$;

-- Watermarks: a whole number for svn, a time for the others; as a number, to be compared. Anything else is refused.
CREATE OR REPLACE FUNCTION scm.rank(p_source text, p_watermark jsonb) RETURNS numeric
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC' AS $$
BEGIN
    IF p_watermark IS NULL OR p_watermark = 'null' THEN
        RETURN NULL;
    ELSIF p_source = 'svn' AND jsonb_typeof(p_watermark) = 'number' AND p_watermark::text ~ '^[0-9]{1,18}$' THEN
        RETURN p_watermark::text::numeric;
    ELSIF p_source <> 'svn' AND jsonb_typeof(p_watermark) = 'string' AND p_watermark #>> '{}' ~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d' THEN
        RETURN extract(epoch FROM (p_watermark #>> '{}')::timestamptz);
    END IF;
    RAISE EXCEPTION 'a watermark of % is %, not %', p_source, CASE p_source WHEN 'svn' THEN 'a revision' ELSE 'a time' END,
        left(p_watermark::text, 100) USING ERRCODE = 'TN022';
END $$;

-- The cursor, in the form of today or an older one. Lost, it is where the newest completed run ended.
CREATE OR REPLACE FUNCTION scm.read_cursor(p_task scm.sync_tasks, OUT watermark jsonb, OUT origin text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    held jsonb;
BEGIN
    SELECT k.value INTO held FROM logbook.kv k WHERE k.namespace = 'scm.sync'
       AND k.key IN (p_task.source_type || '_cursor:' || p_task.repo_id,
                     CASE WHEN p_task.source_type = 'git' THEN 'gitlab_cursor:' || p_task.repo_id END)
     ORDER BY k.key = p_task.source_type || '_cursor:' || p_task.repo_id DESC LIMIT 1;
    watermark := nullif(coalesce(held -> 'watermark', held -> 'last_rev', held -> 'last_commit_ts'), 'null');
    origin := 'cursor';
    IF watermark IS NULL THEN
        SELECT r.watermark_end, 'run:' || r.run_id INTO watermark, origin FROM scm.sync_runs r
         WHERE r.task_id = p_task.task_id AND r.status = 'completed' AND r.watermark_end IS NOT NULL AND r.mode = 'incremental'
         ORDER BY r.finished_at DESC LIMIT 1;
    END IF;
    origin := coalesce(CASE WHEN watermark IS NOT NULL THEN origin END, 'none');
END $$;
