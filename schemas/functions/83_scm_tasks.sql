-- Repositories, tasks and requests: what people, schedules and the leader ask for.

CREATE OR REPLACE FUNCTION scm.find_repo(p_name text) RETURNS scm.repos
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    repo scm.repos;
BEGIN
    SELECT r.* INTO repo FROM scm.repos r WHERE r.name = p_name FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no repo %', p_name USING ERRCODE = 'TN020';
    END IF;
    RETURN repo;
END $$;

-- p_type: svn, git, or gitlab (a git repository behind GitLab's API, named by project_id). A task for each of its sources
-- comes with it, to be started by hand until save_task says otherwise.
CREATE OR REPLACE FUNCTION scm.add_repo(
    p_actor text, p_name text, p_type text, p_url text, p_project_key text, p_default_branch text, p_config jsonb)
RETURNS SETOF scm.repos
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    config jsonb := coalesce(p_config, '{}');
    made   scm.repos;
BEGIN
    IF coalesce(p_name, '') !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$' THEN
        RAISE EXCEPTION 'a repo name has letters, digits, ".", "_" and "-", at most 63' USING ERRCODE = 'TN022';
    ELSIF p_type IS NULL OR p_type NOT IN ('svn', 'git', 'gitlab') THEN
        RAISE EXCEPTION 'a repo is svn, git or gitlab, not %', p_type USING ERRCODE = 'TN022';
    ELSIF coalesce(p_url, '') = '' OR p_url ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'a repo has an address' USING ERRCODE = 'TN022';
    ELSIF p_url ~ '://[^/?#]*:[^/?#]*@' OR config ?| '{token,private_token,access_token,password,secret}' THEN
        RAISE EXCEPTION 'no secret is stored: name the variable that has it (token_env)' USING ERRCODE = 'TN022';
    ELSIF coalesce(config ->> 'token_env', 'T') !~ '^[A-Za-z_][A-Za-z0-9_]{0,99}$' THEN
        RAISE EXCEPTION 'token_env is the name of a variable' USING ERRCODE = 'TN022';
    ELSIF (p_type = 'gitlab') <> (config ? 'project_id') OR coalesce(config ->> 'project_id', '1') !~ '^[1-9][0-9]{0,17}$' THEN
        RAISE EXCEPTION 'a gitlab repo, and no other, has a project_id' USING ERRCODE = 'TN022';
    ELSIF p_type = 'svn' AND p_default_branch IS NOT NULL THEN
        RAISE EXCEPTION 'a default branch is git''s' USING ERRCODE = 'TN022';
    END IF;
    IF p_type = 'gitlab' THEN
        config := config || jsonb_build_object('gitlab_url', rtrim(p_url, '/'));
    END IF;
    BEGIN
        INSERT INTO scm.repos AS r (name, repo_type, url, project_key, default_branch, config_json)
        VALUES (p_name, CASE p_type WHEN 'svn' THEN 'svn' ELSE 'git' END,
            CASE WHEN p_type = 'gitlab' THEN rtrim(p_url, '/') || '/projects/' || (config ->> 'project_id') ELSE p_url END,
            coalesce(p_project_key, ''), p_default_branch, config) RETURNING r.* INTO made;
    EXCEPTION WHEN unique_violation THEN
        RAISE EXCEPTION 'there is a repo % or one at this address already', p_name USING ERRCODE = 'TN021';
    END;
    INSERT INTO scm.sync_tasks (repo_id, source_type)
    SELECT made.repo_id, s.source FROM unnest(CASE p_type WHEN 'svn' THEN '{svn}'::text[] WHEN 'git' THEN '{git}'
        ELSE '{git,gitlab_mr,gitlab_review}' END) AS s (source);
    PERFORM supervisor.note_audit(p_actor, 'repo.add', 'repo:' || p_name, NULL, to_jsonb(made));
    RETURN NEXT made;
END $$;

-- Facts, tasks and runs go with it, and its schedules; the ledger and the artifacts stay (artifacts gc finds what is left).
CREATE OR REPLACE FUNCTION scm.remove_repo(p_actor text, p_name text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was  scm.repos;
    task scm.sync_tasks;
BEGIN
    SELECT r.* INTO was FROM scm.repos r WHERE r.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no repo %', p_name USING ERRCODE = 'TN020';
    END IF;
    FOR task IN SELECT t.* FROM scm.sync_tasks t WHERE t.repo_id = was.repo_id ORDER BY t.task_id FOR UPDATE LOOP
        IF EXISTS (SELECT FROM scm.sync_runs r WHERE r.task_id = task.task_id AND r.status IN ('pending', 'running', 'retrying')) THEN
            RAISE EXCEPTION 'repo % has a sync that has not ended', p_name USING ERRCODE = 'TN021';
        END IF;
        PERFORM scm.save_schedule(p_actor, was, task.source_type, NULL);
        DELETE FROM logbook.kv k WHERE k.namespace = 'scm.sync' AND k.key IN (task.source_type || '_cursor:' || was.repo_id,
            task.source_type || '_state:' || was.repo_id);
    END LOOP;
    PERFORM set_config('tenure.retention', 'on', true);
    DELETE FROM scm.sync_run_moves m USING scm.sync_runs r, scm.sync_tasks t
     WHERE t.repo_id = was.repo_id AND r.task_id = t.task_id AND m.run_id = r.run_id;
    DELETE FROM scm.repos r WHERE r.repo_id = was.repo_id;
    PERFORM set_config('tenure.retention', 'off', true);
    PERFORM supervisor.note_audit(p_actor, 'repo.remove', 'repo:' || p_name, to_jsonb(was), NULL);
    RETURN was.repo_id;
END $$;

-- The definition through which the leader's scheduler fires a task: there while the task has a cron expression and is enabled.
CREATE OR REPLACE FUNCTION scm.save_schedule(p_actor text, p_repo scm.repos, p_source text, p_cron text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name  text := format('scm/%s/%s', p_repo.name, p_source);
    there boolean := EXISTS (SELECT FROM supervisor.job_definition d WHERE d.name = format('scm/%s/%s', p_repo.name, p_source)
                                AND d.removed_at IS NULL);
BEGIN
    IF p_cron IS NOT NULL THEN
        PERFORM supervisor.save_job(p_actor, name, jsonb_build_object('domain', 'scm', 'action', 'sync', 'cron', p_cron, 'enabled', true,
            'payload', jsonb_build_object('repo', p_repo.name, 'source', p_source),
            -- one at a time: what is missed meanwhile is in the next one
            'concurrency', 1, 'concurrency_policy', 'forbid', 'missed', 'latest'), NOT there);
    ELSIF there THEN
        -- disabled, not removed: runs of it may be alive
        PERFORM supervisor.save_job(p_actor, name, '{"enabled": false, "cron": null}', false);
    END IF;
END $$;

-- What a worker will read of a configuration; what it does not know it leaves alone.
CREATE OR REPLACE FUNCTION scm.check_config(p_config jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad text;
BEGIN
    IF jsonb_typeof(p_config) IS DISTINCT FROM 'object' OR p_config ?| '{token,private_token,access_token,password,secret}' THEN
        RAISE EXCEPTION 'a configuration is an object without secrets' USING ERRCODE = 'TN022';
    END IF;
    SELECT k.name INTO bad FROM (VALUES
        ('parallelism', 1, 16), ('batch_size', 10, 1000), ('interval_seconds', 0, 86400), ('retry_count', 0, 10),
        ('retry_interval', 1, 60), ('default_overlap', 0, 100), ('overlap', 0, 100), ('lock_timeout', 60, 3600),
        ('max_lag_seconds', 300, 86400), ('bulk_threshold', 50, 500), ('diff_size_limit_mb', 1, 50)) AS k (name, least, most)
     WHERE p_config ? k.name AND NOT CASE jsonb_typeof(p_config -> k.name)
        WHEN 'number' THEN (p_config ->> k.name)::numeric BETWEEN k.least AND k.most AND (p_config ->> k.name) ~ '^[0-9]+$' ELSE false END
    UNION ALL
    SELECT k.name FROM (VALUES ('auto'), ('diff_fetch_enabled'), ('update_watermark')) AS k (name)
     WHERE p_config ? k.name AND jsonb_typeof(p_config -> k.name) <> 'boolean'
    UNION ALL
    SELECT 'mode' WHERE p_config ? 'mode' AND p_config -> 'mode' NOT IN ('"strict"', '"best_effort"')
    UNION ALL
    SELECT 'retry_backoff' WHERE p_config ? 'retry_backoff'
       AND p_config -> 'retry_backoff' NOT IN ('"fixed"', '"linear"', '"exponential"')
    LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'the configuration cannot be understood: %', bad USING ERRCODE = 'TN022';
    END IF;
END $$;

-- Makes the task, or sets what is not NULL of it. An empty cron expression takes the schedule away.
CREATE OR REPLACE FUNCTION scm.save_task(
    p_actor text, p_repo text, p_source text, p_cron text, p_priority integer, p_config jsonb)
RETURNS SETOF scm.sync_tasks
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    repo  scm.repos := scm.find_repo(p_repo);
    was   scm.sync_tasks;
    saved scm.sync_tasks;
BEGIN
    IF p_source IS NULL OR p_source NOT IN ('svn', 'git', 'gitlab_mr', 'gitlab_review') OR (p_source = 'svn') <> (repo.repo_type = 'svn')
       OR p_source LIKE 'gitlab%' AND NOT repo.config_json ? 'project_id' THEN
        RAISE EXCEPTION 'repo % has no source %', p_repo, p_source USING ERRCODE = 'TN022';
    ELSIF length(p_cron) > 50 THEN
        RAISE EXCEPTION 'a cron expression has at most 50 characters' USING ERRCODE = 'TN022';
    END IF;
    PERFORM scm.check_config(coalesce(p_config, '{}'));
    SELECT t.* INTO was FROM scm.sync_tasks t WHERE t.repo_id = repo.repo_id AND t.source_type = p_source FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO scm.sync_tasks AS t (repo_id, source_type) VALUES (repo.repo_id, p_source)
        ON CONFLICT (repo_id, source_type) DO UPDATE SET priority = t.priority;
    END IF;
    UPDATE scm.sync_tasks t SET cron_expr = CASE WHEN p_cron IS NULL THEN t.cron_expr ELSE nullif(p_cron, '') END,
           priority = coalesce(p_priority, t.priority), config_json = coalesce(p_config, t.config_json),
           -- one that runs by itself from now on begins now
           next_run_at = CASE WHEN t.status = 'disabled' OR scm.next_instant(coalesce(p_config, t.config_json)) IS NULL THEN NULL
               WHEN coalesce((t.config_json ->> 'auto')::boolean, false) THEN coalesce(t.next_run_at, CASE WHEN EXISTS
                   (SELECT FROM scm.sync_runs r WHERE r.task_id = t.task_id AND r.status IN ('pending', 'running', 'retrying'))
                   THEN NULL ELSE clock_timestamp() END)
               ELSE clock_timestamp() END
     WHERE t.repo_id = repo.repo_id AND t.source_type = p_source RETURNING t.* INTO saved;
    IF saved.status <> 'disabled' THEN
        PERFORM scm.save_schedule(p_actor, repo, p_source, saved.cron_expr);
    END IF;
    PERFORM supervisor.note_audit(p_actor, 'sync.set', 'sync:' || p_repo || '/' || p_source,
        CASE WHEN was.task_id IS NOT NULL THEN to_jsonb(was) END, to_jsonb(saved));
    RETURN NEXT saved;
END $$;

CREATE OR REPLACE FUNCTION scm.find_task(p_repo text, p_source text) RETURNS scm.sync_tasks
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    repo scm.repos := scm.find_repo(p_repo);
    task scm.sync_tasks;
BEGIN
    SELECT t.* INTO task FROM scm.sync_tasks t WHERE t.repo_id = repo.repo_id AND t.source_type = p_source;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no sync %/%', p_repo, p_source USING ERRCODE = 'TN020';
    END IF;
    RETURN task;
END $$;

CREATE OR REPLACE FUNCTION scm.enable_task(p_actor text, p_repo text, p_source text) RETURNS SETOF scm.sync_tasks
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was  scm.sync_tasks := scm.find_task(p_repo, p_source);
    done scm.sync_tasks;
BEGIN
    UPDATE scm.sync_tasks t SET status = 'pending', consecutive_failures = 0,
           next_run_at = CASE WHEN scm.next_instant(t.config_json) IS NOT NULL THEN clock_timestamp() END
     WHERE t.task_id = was.task_id AND t.status = 'disabled' RETURNING t.* INTO done;
    IF FOUND THEN
        PERFORM scm.save_schedule(p_actor, scm.find_repo(p_repo), p_source, done.cron_expr);
        PERFORM supervisor.note_audit(p_actor, 'sync.enable', 'sync:' || p_repo || '/' || p_source,
            jsonb_build_object('status', 'disabled'), jsonb_build_object('status', done.status));
    END IF;
    RETURN QUERY SELECT t.* FROM scm.sync_tasks t WHERE t.task_id = was.task_id;
END $$;

-- Nothing of it goes on: an open run is cancelled, its worker stops with the next heartbeat.
CREATE OR REPLACE FUNCTION scm.disable_task(p_actor text, p_repo text, p_source text) RETURNS SETOF scm.sync_tasks
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was scm.sync_tasks := scm.find_task(p_repo, p_source);
BEGIN
    PERFORM scm.end_open(was.task_id, 'disabled by ' || p_actor);
    PERFORM FROM scm.sync_tasks t WHERE t.task_id = was.task_id FOR UPDATE;
    -- one that was made meanwhile: its claim may be waiting for the task, so it is not waited for (55P03: again)
    PERFORM FROM scm.sync_runs r WHERE r.task_id = was.task_id AND r.status IN ('pending', 'running', 'retrying') FOR UPDATE NOWAIT;
    PERFORM scm.end_open(was.task_id, 'disabled by ' || p_actor);
    UPDATE scm.sync_tasks t SET status = 'disabled', next_run_at = NULL WHERE t.task_id = was.task_id AND t.status <> 'disabled';
    IF FOUND THEN
        PERFORM scm.save_schedule(p_actor, scm.find_repo(p_repo), p_source, NULL);
        PERFORM supervisor.note_audit(p_actor, 'sync.disable', 'sync:' || p_repo || '/' || p_source,
            jsonb_build_object('status', was.status), jsonb_build_object('status', 'disabled'));
    END IF;
    RETURN QUERY SELECT t.* FROM scm.sync_tasks t WHERE t.task_id = was.task_id;
END $$;

CREATE OR REPLACE FUNCTION scm.end_open(p_task uuid, p_why text) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended integer;
BEGIN
    UPDATE scm.sync_runs r SET status = 'cancelled', error_code = 'CANCELLED', error_message = p_why, lease_expires_at = NULL
     WHERE r.task_id = p_task AND r.status IN ('pending', 'running', 'retrying');
    GET DIAGNOSTICS ended = ROW_COUNT;
    RETURN ended;
END $$;

-- sync-YYYYMMDD-NNN. The day's first takes the number before its own for the base; whoever drew a smaller one draws again.
CREATE OR REPLACE FUNCTION scm.new_run_id() RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    today  date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    drawn  bigint := nextval('scm.run_number');
    base   bigint;
BEGIN
    SELECT d.base INTO base FROM scm.run_days d WHERE d.day = today;
    IF NOT FOUND THEN
        INSERT INTO scm.run_days (day, base) VALUES (today, drawn - 1) ON CONFLICT (day) DO NOTHING;
        SELECT d.base INTO base FROM scm.run_days d WHERE d.day = today;
    END IF;
    IF drawn <= base THEN
        drawn := nextval('scm.run_number');
    END IF;
    RETURN format('sync-%s-%s', to_char(today, 'YYYYMMDD'), lpad((drawn - base)::text, greatest(3, length((drawn - base)::text)), '0'));
END $$;

-- A run of a task whose row the caller has locked, or the one that is open already.
CREATE OR REPLACE FUNCTION scm.make_run(
    p_task scm.sync_tasks, p_by text, p_mode text, p_range jsonb, p_by_run bigint, p_losses integer,
    OUT made scm.sync_runs, OUT created boolean)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    cursor_at record;
    repo      scm.repos;
    item      bigint;
    id        text;
BEGIN
    SELECT r.* INTO made FROM scm.sync_runs r WHERE r.task_id = p_task.task_id AND r.status IN ('pending', 'running', 'retrying');
    created := NOT FOUND;
    IF NOT created THEN
        RETURN;
    END IF;
    SELECT r.* INTO repo FROM scm.repos r WHERE r.repo_id = p_task.repo_id;
    cursor_at := scm.read_cursor(p_task);
    id := scm.new_run_id();
    item := logbook.add_item('scm.sync', format('%s of %s', p_task.source_type, repo.name), 'pending', repo.project_key,
        jsonb_build_object('run_id', id, 'repo_id', p_task.repo_id, 'source_type', p_task.source_type, 'mode', p_mode));
    INSERT INTO scm.sync_runs AS r (run_id, task_id, source_type, priority, mode, range_json, config_json, max_attempts, requested_by, requested_by_run,
        losses, watermark_start, item_id)
    VALUES (id, p_task.task_id, p_task.source_type, p_task.priority, p_mode, p_range, p_task.config_json,
        coalesce((p_task.config_json ->> 'retry_count')::integer, 3) + 1, p_by, p_by_run, p_losses,
        coalesce(cursor_at.watermark, 'null'), item) RETURNING r.* INTO made;
    UPDATE scm.sync_tasks t SET next_run_at = NULL, last_run_id = made.run_id,
           status = CASE t.status WHEN 'failed' THEN 'pending' ELSE t.status END WHERE t.task_id = p_task.task_id;
    PERFORM pg_notify('tenure', 'lease:scm.sync_runs');
END $$;

-- The row of the run, and whether it is new. A disabled task is refused: enable it first.
CREATE OR REPLACE FUNCTION scm.ask_sync(p_by text, p_repo text, p_source text, p_mode text, p_range jsonb, p_by_run bigint,
    OUT made scm.sync_runs, OUT created boolean)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    task   scm.sync_tasks := scm.find_task(p_repo, p_source);
    mode   text := coalesce(p_mode, 'incremental');
    range  jsonb := coalesce(p_range, '{}');
    low    numeric;
    high   numeric;
    answer record;
BEGIN
    SELECT t.* INTO task FROM scm.sync_tasks t WHERE t.task_id = task.task_id FOR UPDATE;
    IF task.task_id IS NULL THEN
        RAISE EXCEPTION 'no sync %/%', p_repo, p_source USING ERRCODE = 'TN020';
    ELSIF task.status = 'disabled' THEN
        RAISE EXCEPTION 'sync %/% is disabled', p_repo, p_source USING ERRCODE = 'TN021', HINT = 'tenure sync enable';
    ELSIF mode NOT IN ('incremental', 'backfill') OR jsonb_typeof(range) <> 'object'
       OR range - '{from,to,update_watermark}'::text[] <> '{}' OR mode = 'incremental' AND range <> '{}'
       OR range ? 'update_watermark' AND jsonb_typeof(range -> 'update_watermark') <> 'boolean' THEN
        RAISE EXCEPTION 'a sync is incremental, or a backfill with from, to and update_watermark' USING ERRCODE = 'TN022';
    END IF;
    low := scm.rank(p_source, range -> 'from');
    high := scm.rank(p_source, range -> 'to');
    IF low > high THEN
        RAISE EXCEPTION 'the range ends before it begins' USING ERRCODE = 'TN022';
    END IF;
    answer := scm.make_run(task, p_by, mode, range, p_by_run, 0);
    IF NOT answer.created AND ((answer.made).mode, (answer.made).range_json) IS DISTINCT FROM (mode, range) THEN
        RAISE EXCEPTION 'sync % is open and does something else', (answer.made).run_id USING ERRCODE = 'TN021';
    END IF;
    made := answer.made;
    created := answer.created;
END $$;

CREATE OR REPLACE FUNCTION scm.request_sync(
    p_actor text, p_repo text, p_source text, p_mode text DEFAULT NULL, p_range jsonb DEFAULT NULL, p_by_run bigint DEFAULT NULL)
RETURNS TABLE (run scm.sync_runs, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer record;
BEGIN
    answer := scm.ask_sync(p_actor, p_repo, p_source, p_mode, p_range, p_by_run);
    PERFORM supervisor.note_audit(p_actor, 'sync.request', 'sync:' || p_repo || '/' || p_source, NULL,
        jsonb_build_object('run_id', (answer.made).run_id, 'created', answer.created, 'mode', (answer.made).mode));
    RETURN QUERY SELECT answer.made, answer.created;
END $$;

-- A JobRun asks for its part, under its own claim. Asked again by the same root it gets the run it made, ended or not, unless
-- that one failed or was lost: then a new one. An open run of somebody else will do as well.
-- p_options: {"mode", "range"}.
CREATE OR REPLACE FUNCTION scm.request_for_run(p_run_id bigint, p_claim uuid, p_repo text, p_source text, p_options jsonb)
RETURNS TABLE (run scm.sync_runs, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    root   bigint;
    task   scm.sync_tasks;
    mine   scm.sync_runs;
    answer record;
BEGIN
    SELECT r.root_id INTO root FROM supervisor.job_run r
     WHERE r.id = p_run_id AND r.claim_id = p_claim AND r.state = 'RUNNING' FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run % is not running under this claim', p_run_id USING ERRCODE = 'TN021';
    END IF;
    task := scm.find_task(p_repo, p_source);
    SELECT r.* INTO mine FROM scm.sync_runs r WHERE r.requested_by_run = root AND r.task_id = task.task_id
     ORDER BY r.created_at DESC LIMIT 1;
    IF mine.status = 'completed' THEN
        RETURN QUERY SELECT mine, false;
        RETURN;
    END IF;
    answer := scm.ask_sync('run:' || p_run_id, p_repo, p_source, p_options ->> 'mode', p_options -> 'range', root);
    RETURN QUERY SELECT answer.made, answer.created;
END $$;

CREATE OR REPLACE FUNCTION scm.cancel_sync(p_actor text, p_run text) RETURNS SETOF scm.sync_runs
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was  scm.sync_runs;
    done scm.sync_runs;
BEGIN
    SELECT r.* INTO was FROM scm.sync_runs r WHERE r.run_id = p_run FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no sync %', p_run USING ERRCODE = 'TN020';
    END IF;
    IF was.status IN ('completed', 'exhausted', 'cancelled') OR was.status = 'failed' AND was.finished_at IS NOT NULL THEN
        RAISE EXCEPTION 'sync % has ended as %', p_run, was.status USING ERRCODE = 'TN021';
    END IF;
    -- the worker's next heartbeat finds the row no longer running, and stops
    UPDATE scm.sync_runs r SET status = 'cancelled', error_code = 'CANCELLED', error_message = 'cancelled by ' || p_actor,
        lease_expires_at = NULL WHERE r.run_id = p_run RETURNING r.* INTO done;
    PERFORM supervisor.note_audit(p_actor, 'sync.cancel', 'sync-run:' || p_run,
        jsonb_build_object('status', was.status), jsonb_build_object('status', done.status));
    RETURN NEXT done;
END $$;

-- A JobRun that was asked to stop takes its syncs along; a lost or drained attempt does not: the next one goes on with them.
CREATE OR REPLACE FUNCTION scm.cancel_for_run(p_run_id bigint, p_claim uuid) RETURNS integer
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
    UPDATE scm.sync_runs r SET status = 'cancelled', error_code = 'CANCELLED', error_message = 'its run was cancelled',
        lease_expires_at = NULL
     WHERE r.requested_by_run = root AND r.status IN ('pending', 'running', 'retrying');
    GET DIAGNOSTICS cancelled = ROW_COUNT;
    RETURN cancelled;
END $$;

-- The leader's part: tasks whose time has come, and what was lost with its worker.
CREATE OR REPLACE FUNCTION scm.make_due_runs(p_epoch bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    task   scm.sync_tasks;
    lost   scm.sync_runs;
    answer record;
    made   integer := 0;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    FOR task IN SELECT t.* FROM scm.sync_tasks t WHERE t.next_run_at <= clock_timestamp() AND t.status IN ('pending', 'failed')
                 ORDER BY t.priority DESC, t.next_run_at LIMIT 100 FOR UPDATE SKIP LOCKED LOOP
        SELECT r.* INTO lost FROM scm.sync_runs r WHERE r.run_id = task.last_run_id AND r.status = 'failed'
            AND r.error_code IN ('LEASE_EXPIRED', 'WORKER_LOST');
        answer := scm.make_run(task, coalesce(lost.requested_by, 'leader'), coalesce(lost.mode, 'incremental'),
            coalesce(lost.range_json, '{}'), lost.requested_by_run,
            CASE WHEN lost.run_id IS NULL OR lost.batches > 0 THEN 0 ELSE lost.losses + 1 END);
        made := made + answer.created::integer;
    END LOOP;
    RETURN made;
END $$;

-- The leader's part for rows whose lease is of no use: running long, and their worker not heard of. The lease itself is sooner.
CREATE OR REPLACE FUNCTION scm.recover_runs(p_epoch bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    recovered integer;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    WITH stale AS MATERIALIZED (
        SELECT r.run_id FROM scm.sync_runs r
         WHERE r.status = 'running'
           AND r.started_at < clock_timestamp() - make_interval(secs => (scm.setting('scm_stale_run_seconds'))::double precision)
           AND coalesce(r.lease_expires_at <= clock_timestamp(), true)
           AND NOT EXISTS (SELECT FROM scm.worker_heartbeats w WHERE w.worker_id = r.worker_id AND w.last_seen
                > clock_timestamp() - make_interval(secs => (scm.setting('scm_stale_worker_seconds'))::double precision))
         ORDER BY r.run_id FOR UPDATE OF r SKIP LOCKED
    )
    UPDATE scm.sync_runs r SET status = 'failed', error_code = 'WORKER_LOST', error_message = 'its worker is no longer heard of',
           finished_at = clock_timestamp(), worker_id = NULL, worker_heartbeat_at = NULL, lease_expires_at = NULL, claim_id = NULL
     WHERE r.run_id = ANY (ARRAY(SELECT s.run_id FROM stale s));
    GET DIAGNOSTICS recovered = ROW_COUNT;
    RETURN recovered;
END $$;

-- The leader's part: what ended long ago goes, but never the newest completed run of a task, of which a lost cursor is rebuilt.
CREATE OR REPLACE FUNCTION scm.purge_runs(p_epoch bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    since timestamptz := clock_timestamp() - make_interval(secs => 86400 * (scm.setting('scm_run_history_days'))::double precision);
    old   text[];
BEGIN
    PERFORM supervisor.fence(p_epoch);
    old := ARRAY(SELECT r.run_id FROM scm.sync_runs r
         WHERE r.finished_at < since
           AND NOT (r.status = 'completed' AND NOT EXISTS (SELECT FROM scm.sync_runs n WHERE n.task_id = r.task_id
                AND n.status = 'completed' AND n.mode = r.mode AND (n.finished_at, n.run_id) > (r.finished_at, r.run_id)))
         ORDER BY r.finished_at LIMIT 500 FOR UPDATE SKIP LOCKED);
    IF cardinality(old) = 0 THEN
        RETURN 0;
    END IF;
    PERFORM set_config('tenure.retention', 'on', true);
    DELETE FROM scm.sync_run_moves m WHERE m.run_id = ANY (old);
    PERFORM set_config('tenure.retention', 'off', true);
    DELETE FROM scm.sync_runs r WHERE r.run_id = ANY (old);
    DELETE FROM scm.run_days d WHERE d.day < since::date;
    RETURN cardinality(old);
END $$;

-- The leader's part: where a run was cancelled and no handler was there to take its syncs along.
CREATE OR REPLACE FUNCTION scm.cancel_for_ended_runs(p_epoch bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    cancelled integer;
BEGIN
    PERFORM supervisor.fence(p_epoch);
    UPDATE scm.sync_runs q SET status = 'cancelled', error_code = 'CANCELLED', error_message = 'its run was cancelled',
        lease_expires_at = NULL
     WHERE q.status IN ('pending', 'running', 'retrying') AND q.requested_by_run IS NOT NULL
       AND EXISTS (SELECT FROM supervisor.job_run r WHERE r.root_id = q.requested_by_run AND r.state = 'CANCELED')
       AND NOT EXISTS (SELECT FROM supervisor.job_run r WHERE r.root_id = q.requested_by_run
            AND (r.state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED') OR r.retry_at IS NOT NULL AND r.next_attempt_id IS NULL));
    GET DIAGNOSTICS cancelled = ROW_COUNT;
    RETURN cancelled;
END $$;
