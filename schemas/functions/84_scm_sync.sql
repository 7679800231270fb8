-- What a worker of a sync calls, always with its claim: a worker that lost it changes nothing. A batch is written whole, facts,
-- cursor, figures and ledger in one transaction, or not at all; sent again it changes nothing.
-- What stands already is left out before the upsert: a conflict locks and logs its row even where nothing is to be written. It is
-- looked up in a subquery, row by row: a join would be planned while the table is empty, and serve it when it has millions.

-- p_retry_count: how often this worker's configuration retries, where the task's own says nothing.
CREATE OR REPLACE FUNCTION scm.begin_sync(p_run text, p_claim uuid, p_retry_count integer DEFAULT NULL)
RETURNS TABLE (repo_id bigint, repo text, repo_type text, url text, project_key text, default_branch text, repo_config jsonb,
    source_type text, config jsonb, mode text, range jsonb, watermark jsonb, origin text, state jsonb, batches integer,
    attempt integer, lock_key text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    run  scm.sync_runs := scm.claimed_run(p_run, p_claim);
    task scm.sync_tasks;
BEGIN
    SELECT t.* INTO task FROM scm.sync_tasks t WHERE t.task_id = run.task_id;
    UPDATE scm.sync_runs r SET updated_at = clock_timestamp(), max_attempts = CASE
            WHEN p_retry_count IS NULL OR run.config_json ? 'retry_count' THEN r.max_attempts
            ELSE least(greatest(p_retry_count, 0), 10) + 1 END
     WHERE r.run_id = p_run AND r.claim_id = p_claim AND r.status = 'running';
    RETURN QUERY SELECT p.repo_id, p.name, p.repo_type, p.url, p.project_key, p.default_branch, p.config_json,
        task.source_type::text, run.config_json, run.mode, run.range_json, c.watermark, c.origin, k.value, run.batches,
        run.attempts, task.lock_key
        FROM scm.repos p CROSS JOIN scm.read_cursor(task) c
        LEFT JOIN logbook.kv k ON k.namespace = 'scm.sync' AND k.key = task.source_type || '_state:' || task.repo_id
        WHERE p.repo_id = task.repo_id;
END $$;

-- The run that a batch belongs to; NULL where that batch is written already.
CREATE OR REPLACE FUNCTION scm.open_batch(p_run text, p_claim uuid, p_batch integer, p_facts jsonb, p_source text)
RETURNS scm.sync_runs
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run scm.sync_runs := scm.claimed_run(p_run, p_claim);
BEGIN
    IF run.source_type <> p_source OR jsonb_typeof(p_facts) IS DISTINCT FROM 'array' OR jsonb_array_length(p_facts) > 10000 THEN
        RAISE EXCEPTION 'sync % is of %: a batch of it is a list of its facts, at most 10000', p_run, run.source_type USING ERRCODE = 'TN022';
    ELSIF run.batches NOT IN (p_batch, p_batch - 1) THEN
        RAISE EXCEPTION 'sync % does not go on at batch %', p_run, p_batch USING ERRCODE = 'TN021';
    END IF;
    RETURN CASE WHEN run.batches < p_batch THEN run END;
END $$;

-- The last statements of a batch: the claim once more, now with the row's lock, then the cursor and the ledger.
CREATE OR REPLACE FUNCTION scm.close_batch(p_run scm.sync_runs, p_batch integer, p_fetched bigint, p_inserted bigint, p_updated bigint,
    p_watermark jsonb, p_state jsonb) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    task    scm.sync_tasks;
    ranked  numeric;
    skipped bigint := p_fetched - p_inserted - p_updated;
BEGIN
    SELECT t.* INTO task FROM scm.sync_tasks t WHERE t.task_id = p_run.task_id;
    p_watermark := scm.not_ahead(task.source_type, p_watermark);
    ranked := scm.rank(task.source_type, p_watermark);
    UPDATE scm.sync_runs r SET batches = p_batch, updated_at = clock_timestamp(),
           watermark = CASE WHEN ranked > coalesce(scm.rank(task.source_type, r.watermark), '-Infinity') THEN p_watermark ELSE r.watermark END,
           stats_json = r.stats_json || jsonb_build_object(
               'fetched', coalesce((r.stats_json ->> 'fetched')::bigint, 0) + p_fetched,
               'inserted', coalesce((r.stats_json ->> 'inserted')::bigint, 0) + p_inserted,
               'updated', coalesce((r.stats_json ->> 'updated')::bigint, 0) + p_updated,
               'skipped', coalesce((r.stats_json ->> 'skipped')::bigint, 0) + skipped,
               'duration_ms', scm.milliseconds(clock_timestamp() - r.started_at),
               'last_batch_ms', scm.milliseconds(clock_timestamp() - r.updated_at), 'batches', p_batch)
     WHERE r.run_id = p_run.run_id AND r.claim_id = p_run.claim_id AND r.status = 'running'
       AND r.lease_expires_at > clock_timestamp() AND r.batches = p_batch - 1;
    IF NOT FOUND THEN
        -- the first copy of this very call was quicker; else the claim is gone, and with it all of this
        IF (scm.claimed_run(p_run.run_id, p_run.claim_id)).batches = p_batch THEN
            RETURN false;
        END IF;
        RAISE EXCEPTION 'sync % does not go on at batch %', p_run.run_id, p_batch USING ERRCODE = 'TN021';
    END IF;
    IF ranked IS NOT NULL AND (p_run.mode = 'incremental' OR coalesce((p_run.range_json ->> 'update_watermark')::boolean, false)) THEN
        PERFORM scm.save_cursor(task, p_watermark, p_run.run_id);
    END IF;
    -- a range that was read again says nothing of what lies outside of it
    IF p_state IS NOT NULL AND p_run.mode = 'incremental' THEN
        INSERT INTO logbook.kv AS k (namespace, key, value) VALUES ('scm.sync', task.source_type || '_state:' || task.repo_id, p_state)
        ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value, updated_at = clock_timestamp();
    END IF;
    PERFORM logbook.add_event(p_run.item_id, 'scm.sync.batch', NULL, jsonb_strip_nulls(jsonb_build_object('run_id', p_run.run_id,
        'batch', p_batch, 'fetched', p_fetched, 'inserted', p_inserted, 'updated', p_updated, 'skipped', skipped,
        'watermark', p_watermark)));
    RETURN true;
END $$;

-- Clocks of committers go wrong: a time that has not come yet would hide everything until it has.
CREATE OR REPLACE FUNCTION scm.not_ahead(p_source text, p_watermark jsonb) RETURNS jsonb
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN p_source <> 'svn' AND scm.rank(p_source, p_watermark) > extract(epoch FROM clock_timestamp())
        THEN to_jsonb(to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) ELSE p_watermark END
$$;

-- Forward only; where there is none it is where the data says. Whoever comes here holds the run, so nobody else is here.
CREATE OR REPLACE FUNCTION scm.save_cursor(p_task scm.sync_tasks, p_watermark jsonb, p_run text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stands jsonb := (scm.read_cursor(p_task)).watermark;
BEGIN
    IF scm.rank(p_task.source_type, stands) >= scm.rank(p_task.source_type, p_watermark) THEN
        p_watermark := stands;
    END IF;
    INSERT INTO logbook.kv AS k (namespace, key, value)
    VALUES ('scm.sync', p_task.source_type || '_cursor:' || p_task.repo_id, jsonb_build_object('watermark', p_watermark, 'run_id', p_run,
        'updated_at', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))
    ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value, updated_at = clock_timestamp();
END $$;

CREATE OR REPLACE FUNCTION scm.record_patches(p_repo bigint, p_type text, p_ids text[], p_patches jsonb[]) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO scm.patch_blobs AS b (source_type, source_id, repo_id, uri, sha256, size_bytes, meta_json)
    SELECT DISTINCT ON (g.id) p_type, p_repo || ':' || g.id, p_repo, g.patch ->> 'uri', g.patch ->> 'sha256', (g.patch ->> 'size_bytes')::bigint,
           coalesce(nullif(g.patch -> 'meta', 'null'), '{}') || jsonb_build_object('evidence_uri',
               format('memory://patch_blobs/%s/%s:%s/%s', p_type, p_repo, g.id, g.patch ->> 'sha256'))
      FROM unnest(p_ids, p_patches) WITH ORDINALITY AS g (id, patch, place) WHERE jsonb_typeof(g.patch) = 'object'
     ORDER BY g.id, g.place DESC
    ON CONFLICT (source_type, source_id) DO UPDATE
       SET uri = excluded.uri, sha256 = excluded.sha256, size_bytes = excluded.size_bytes, meta_json = excluded.meta_json,
           updated_at = clock_timestamp()
     WHERE (b.uri, b.sha256, b.size_bytes, b.meta_json)
           IS DISTINCT FROM (excluded.uri, excluded.sha256, excluded.size_bytes, excluded.meta_json)
$$;

-- Facts: {"rev", "author", "ts", "message", "is_bulk", "bulk_reason", "meta": {"changed_paths": [...]},
--         "patch": {"uri", "sha256", "size_bytes", "meta"} or null}
CREATE OR REPLACE FUNCTION scm.record_svn(p_run text, p_claim uuid, p_batch integer, p_facts jsonb, p_watermark jsonb,
    p_state jsonb DEFAULT NULL)
RETURNS TABLE (inserted bigint, updated bigint, skipped bigint, is_new boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    run   scm.sync_runs := scm.open_batch(p_run, p_claim, p_batch, p_facts, 'svn');
    total bigint := jsonb_array_length(p_facts);
    repo  bigint;
    made  bigint;
    moved bigint;
BEGIN
    IF run.run_id IS NULL THEN
        RETURN QUERY SELECT 0::bigint, 0::bigint, 0::bigint, false;
        RETURN;
    END IF;
    repo := (SELECT t.repo_id FROM scm.sync_tasks t WHERE t.task_id = run.task_id);
    WITH given AS MATERIALIZED (
        SELECT DISTINCT ON (f.rev) f.* FROM jsonb_to_recordset(p_facts)
            AS f (rev bigint, author text, ts timestamptz, message text, is_bulk boolean, bulk_reason text, meta jsonb)
         ORDER BY f.rev
    ), mapped AS (
        SELECT g.rev, coalesce(g.author, '') AS author, a.user_id, g.ts, coalesce(g.message, '') AS message,
               coalesce(g.is_bulk, false) AS is_bulk, g.bulk_reason, coalesce(nullif(g.meta, 'null'), '{}') AS meta
          FROM given g LEFT JOIN identity.accounts a ON a.type = 'svn' AND a.name = g.author
    ), written AS (
        INSERT INTO scm.svn_revisions AS s (repo_id, rev_num, author_raw, author_user_id, ts, message, is_bulk, bulk_reason, meta_json, run_id)
        SELECT repo, m.rev, m.author, m.user_id, m.ts, m.message, m.is_bulk, m.bulk_reason, m.meta, p_run
          FROM mapped m
         WHERE coalesce((SELECT (o.author_raw, o.author_user_id, o.ts, o.message, o.is_bulk, o.bulk_reason, o.meta_json) IS DISTINCT FROM
                                (m.author, m.user_id, m.ts, m.message, m.is_bulk, m.bulk_reason, m.meta)
                           FROM scm.svn_revisions o WHERE o.repo_id = repo AND o.rev_num = m.rev), true)
        ON CONFLICT (repo_id, rev_num) DO UPDATE
           SET author_raw = excluded.author_raw, author_user_id = excluded.author_user_id, ts = excluded.ts, message = excluded.message,
               is_bulk = excluded.is_bulk, bulk_reason = excluded.bulk_reason, meta_json = excluded.meta_json,
               run_id = excluded.run_id, updated_at = clock_timestamp()
         WHERE (s.author_raw, s.author_user_id, s.ts, s.message, s.is_bulk, s.bulk_reason, s.meta_json) IS DISTINCT FROM
               (excluded.author_raw, excluded.author_user_id, excluded.ts, excluded.message, excluded.is_bulk, excluded.bulk_reason,
                excluded.meta_json)
        RETURNING s.xmax = 0 AS fresh
    )
    SELECT count(*) FILTER (WHERE w.fresh), count(*) FILTER (WHERE NOT w.fresh) INTO made, moved FROM written w;
    IF p_facts @? '$[*].patch ? (@ != null)' THEN
        PERFORM scm.record_patches(repo, 'svn', array_agg(f.rev::text), array_agg(f.patch))
            FROM jsonb_to_recordset(p_facts) AS f (rev bigint, patch jsonb);
    END IF;
    IF scm.close_batch(run, p_batch, total, made, moved, p_watermark, p_state) THEN
        RETURN QUERY SELECT made, moved, total - made - moved, true;
    ELSE
        RETURN QUERY SELECT 0::bigint, 0::bigint, 0::bigint, false;
    END IF;
END $$;

-- Facts: {"sha", "author_name", "author_email", "ts", "message", "is_bulk", "bulk_reason",
--         "meta": {"committer_name", "committer_email", "parent_ids": [...], "web_url", "stats": {...}}, "patch": as above or null}
CREATE OR REPLACE FUNCTION scm.record_git(p_run text, p_claim uuid, p_batch integer, p_facts jsonb, p_watermark jsonb,
    p_state jsonb DEFAULT NULL)
RETURNS TABLE (inserted bigint, updated bigint, skipped bigint, is_new boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    run   scm.sync_runs := scm.open_batch(p_run, p_claim, p_batch, p_facts, 'git');
    total bigint := jsonb_array_length(p_facts);
    repo  bigint;
    made  bigint;
    moved bigint;
BEGIN
    IF run.run_id IS NULL THEN
        RETURN QUERY SELECT 0::bigint, 0::bigint, 0::bigint, false;
        RETURN;
    END IF;
    repo := (SELECT t.repo_id FROM scm.sync_tasks t WHERE t.task_id = run.task_id);
    WITH given AS MATERIALIZED (
        SELECT DISTINCT ON (f.sha COLLATE "C") f.sha, f.author_name, f.author_email, f.ts, f.message, f.is_bulk, f.bulk_reason,
               coalesce(nullif(f.meta, 'null'), '{}') || jsonb_build_object('author_email', f.author_email) AS meta
          FROM jsonb_to_recordset(p_facts) AS f (sha text, author_name text, author_email text, ts timestamptz, message text,
               is_bulk boolean, bulk_reason text, meta jsonb)
         ORDER BY f.sha COLLATE "C"
    ), mapped AS (
        SELECT g.sha, coalesce(g.author_name, '') || ' <' || coalesce(g.author_email, '') || '>' AS author,
               coalesce(e.user_id, a.user_id, n.user_id) AS user_id, g.ts, coalesce(g.message, '') AS message,
               coalesce(jsonb_array_length(g.meta -> 'parent_ids'), 0) > 1 AS is_merge, coalesce(g.is_bulk, false) AS is_bulk,
               g.bulk_reason, g.meta
          FROM given g
          LEFT JOIN identity.accounts e ON e.type = 'email' AND e.name = lower(g.author_email)
          LEFT JOIN identity.accounts a ON a.type = 'git' AND a.name = g.author_email
          LEFT JOIN identity.accounts n ON n.type = 'git' AND n.name = g.author_name
    ), written AS (
        INSERT INTO scm.git_commits AS s (repo_id, commit_sha, author_raw, author_user_id, ts, message, is_merge, is_bulk, bulk_reason,
            meta_json, run_id)
        SELECT repo, m.sha, m.author, m.user_id, m.ts, m.message, m.is_merge, m.is_bulk, m.bulk_reason, m.meta, p_run
          FROM mapped m
         WHERE coalesce((SELECT (o.author_raw, o.author_user_id, o.ts, o.message, o.is_merge, o.is_bulk, o.bulk_reason, o.meta_json)
                                IS DISTINCT FROM (m.author, m.user_id, m.ts, m.message, m.is_merge, m.is_bulk, m.bulk_reason, m.meta)
                           FROM scm.git_commits o WHERE o.repo_id = repo AND o.commit_sha = m.sha), true)
        ON CONFLICT (repo_id, commit_sha) DO UPDATE
           SET author_raw = excluded.author_raw, author_user_id = excluded.author_user_id, ts = excluded.ts, message = excluded.message,
               is_merge = excluded.is_merge, is_bulk = excluded.is_bulk, bulk_reason = excluded.bulk_reason,
               meta_json = excluded.meta_json, run_id = excluded.run_id, updated_at = clock_timestamp()
         WHERE (s.author_raw, s.author_user_id, s.ts, s.message, s.is_merge, s.is_bulk, s.bulk_reason, s.meta_json) IS DISTINCT FROM
               (excluded.author_raw, excluded.author_user_id, excluded.ts, excluded.message, excluded.is_merge, excluded.is_bulk,
                excluded.bulk_reason, excluded.meta_json)
        RETURNING s.xmax = 0 AS fresh
    )
    SELECT count(*) FILTER (WHERE w.fresh), count(*) FILTER (WHERE NOT w.fresh) INTO made, moved FROM written w;
    IF p_facts @? '$[*].patch ? (@ != null)' THEN
        PERFORM scm.record_patches(repo, 'git', array_agg(f.sha), array_agg(f.patch))
            FROM jsonb_to_recordset(p_facts) AS f (sha text, patch jsonb);
    END IF;
    IF scm.close_batch(run, p_batch, total, made, moved, p_watermark, p_state) THEN
        RETURN QUERY SELECT made, moved, total - made - moved, true;
    ELSE
        RETURN QUERY SELECT 0::bigint, 0::bigint, 0::bigint, false;
    END IF;
END $$;

-- Facts: {"iid", "author", "status", "url", "created_at", "updated_at", "meta": {"title", "description", "labels", ...}}
CREATE OR REPLACE FUNCTION scm.write_mrs(p_run text, p_repo bigint, p_facts jsonb, OUT made bigint, OUT moved bigint)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH given AS MATERIALIZED (
        SELECT DISTINCT ON (f.iid) f.* FROM jsonb_to_recordset(p_facts)
            AS f (iid bigint, author text, status text, url text, created_at timestamptz, updated_at timestamptz, meta jsonb)
         ORDER BY f.iid, f.updated_at DESC NULLS LAST
    ), written AS (
        INSERT INTO scm.mrs AS s (mr_id, repo_id, iid, author_raw, author_user_id, status, url, meta_json, source_created_at,
            source_updated_at, run_id)
        SELECT p_repo || ':' || g.iid, p_repo, g.iid, coalesce(g.author, ''), a.user_id, g.status, coalesce(g.url, ''),
               coalesce(nullif(g.meta, 'null'), '{}'), g.created_at, g.updated_at, p_run
          FROM given g LEFT JOIN identity.accounts a ON a.type = 'gitlab' AND a.name = g.author
        ON CONFLICT (mr_id) DO UPDATE
           SET author_raw = excluded.author_raw, author_user_id = excluded.author_user_id, status = excluded.status, url = excluded.url,
               meta_json = excluded.meta_json, source_created_at = excluded.source_created_at,
               source_updated_at = excluded.source_updated_at, run_id = excluded.run_id, updated_at = clock_timestamp()
         -- two sources write these, each at its own time: an older state never covers a newer one
         WHERE coalesce(excluded.source_updated_at >= s.source_updated_at, true)
           AND (s.author_raw, s.author_user_id, s.status, s.url, s.meta_json, s.source_created_at, s.source_updated_at) IS DISTINCT FROM
               (excluded.author_raw, excluded.author_user_id, excluded.status, excluded.url, excluded.meta_json,
                excluded.source_created_at, excluded.source_updated_at)
        RETURNING s.xmax = 0 AS fresh
    )
    SELECT count(*) FILTER (WHERE w.fresh), count(*) FILTER (WHERE NOT w.fresh) FROM written w
$$;

CREATE OR REPLACE FUNCTION scm.record_mrs(p_run text, p_claim uuid, p_batch integer, p_facts jsonb, p_watermark jsonb,
    p_state jsonb DEFAULT NULL)
RETURNS TABLE (inserted bigint, updated bigint, skipped bigint, is_new boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    run   scm.sync_runs := scm.open_batch(p_run, p_claim, p_batch, p_facts, 'gitlab_mr');
    total bigint := jsonb_array_length(p_facts);
    done  record;
BEGIN
    IF run.run_id IS NULL THEN
        RETURN QUERY SELECT 0::bigint, 0::bigint, 0::bigint, false;
        RETURN;
    END IF;
    done := scm.write_mrs(p_run, (SELECT t.repo_id FROM scm.sync_tasks t WHERE t.task_id = run.task_id), p_facts);
    IF scm.close_batch(run, p_batch, total, done.made, done.moved, p_watermark, p_state) THEN
        RETURN QUERY SELECT done.made, done.moved, total - done.made - done.moved, true;
    ELSE
        RETURN QUERY SELECT 0::bigint, 0::bigint, 0::bigint, false;
    END IF;
END $$;

-- Facts: {"iid", "source_event_id", "event_type", "author", "ts", "payload": {...}}. p_mrs: the merge requests they are about, as
-- for record_mrs; not counted. An event of one that nobody knows is refused.
CREATE OR REPLACE FUNCTION scm.record_reviews(p_run text, p_claim uuid, p_batch integer, p_mrs jsonb, p_facts jsonb, p_watermark jsonb,
    p_state jsonb DEFAULT NULL)
RETURNS TABLE (inserted bigint, updated bigint, skipped bigint, is_new boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    run   scm.sync_runs := scm.open_batch(p_run, p_claim, p_batch, p_facts, 'gitlab_review');
    total bigint := jsonb_array_length(p_facts);
    repo  bigint;
    made  bigint;
    moved bigint;
BEGIN
    IF run.run_id IS NULL THEN
        RETURN QUERY SELECT 0::bigint, 0::bigint, 0::bigint, false;
        RETURN;
    END IF;
    repo := (SELECT t.repo_id FROM scm.sync_tasks t WHERE t.task_id = run.task_id);
    PERFORM scm.write_mrs(p_run, repo, coalesce(p_mrs, '[]'));
    WITH given AS MATERIALIZED (
        SELECT DISTINCT ON (f.iid, f.source_event_id COLLATE "C") f.* FROM jsonb_to_recordset(p_facts)
            AS f (iid bigint, source_event_id text, event_type text, author text, ts timestamptz, payload jsonb)
         ORDER BY f.iid, f.source_event_id COLLATE "C"
    ), written AS (
        INSERT INTO scm.review_events AS s (mr_id, source_event_id, reviewer_raw, reviewer_user_id, event_type, ts, payload_json, run_id)
        SELECT repo || ':' || g.iid, g.source_event_id, coalesce(g.author, ''), a.user_id, g.event_type, g.ts, coalesce(g.payload, '{}'), p_run
          FROM given g LEFT JOIN identity.accounts a ON a.type = 'gitlab' AND a.name = g.author
        ON CONFLICT (mr_id, source_event_id) DO UPDATE
           SET reviewer_raw = excluded.reviewer_raw, reviewer_user_id = excluded.reviewer_user_id, event_type = excluded.event_type,
               ts = excluded.ts, payload_json = excluded.payload_json, run_id = excluded.run_id, updated_at = clock_timestamp()
         WHERE (s.reviewer_raw, s.reviewer_user_id, s.event_type, s.ts, s.payload_json) IS DISTINCT FROM
               (excluded.reviewer_raw, excluded.reviewer_user_id, excluded.event_type, excluded.ts, excluded.payload_json)
        RETURNING s.xmax = 0 AS fresh
    )
    SELECT count(*) FILTER (WHERE w.fresh), count(*) FILTER (WHERE NOT w.fresh) INTO made, moved FROM written w;
    IF scm.close_batch(run, p_batch, total, made, moved, p_watermark, p_state) THEN
        RETURN QUERY SELECT made, moved, total - made - moved, true;
    ELSE
        RETURN QUERY SELECT 0::bigint, 0::bigint, 0::bigint, false;
    END IF;
END $$;

-- The newest that the source has, for the lag.
CREATE OR REPLACE FUNCTION scm.note_head(p_run text, p_claim uuid, p_watermark jsonb, p_ts timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run scm.sync_runs := scm.claimed_run(p_run, p_claim);
BEGIN
    UPDATE scm.sync_tasks t SET head_watermark = scm.not_ahead(t.source_type, p_watermark), head_ts = least(p_ts, clock_timestamp()),
           head_at = clock_timestamp()
     WHERE t.task_id = run.task_id AND scm.rank(t.source_type, p_watermark) IS NOT NULL;
END $$;

-- best_effort: what could not be read is written down, and the sync goes on. The first hundred stand in the run itself.
CREATE OR REPLACE FUNCTION scm.note_failure(p_run text, p_claim uuid, p_what text, p_code text, p_message text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run     scm.sync_runs := scm.claimed_run(p_run, p_claim);
    failure jsonb := jsonb_build_object('what', left(p_what, 300), 'code', left(p_code, 100), 'message', left(p_message, 1000));
BEGIN
    -- told again, by a call without an answer or by the next attempt, it is the same failure; the lock makes the second copy wait
    PERFORM FROM scm.sync_runs r WHERE r.run_id = p_run FOR UPDATE;
    IF EXISTS (SELECT FROM logbook.events e WHERE e.item_id = run.item_id AND e.event_type = 'scm.sync.failure'
            AND e.payload_json @> (jsonb_build_object('run_id', p_run) || (failure - 'message'))) THEN
        RETURN;
    END IF;
    UPDATE scm.sync_runs r SET
           error_json = jsonb_set(coalesce(r.error_json, '{}'), '{failures}', coalesce(r.error_json -> 'failures', '[]')
               || CASE WHEN jsonb_array_length(coalesce(r.error_json -> 'failures', '[]')) < 100 THEN jsonb_build_array(failure) ELSE '[]' END),
           stats_json = r.stats_json || jsonb_build_object('failures', coalesce((r.stats_json ->> 'failures')::bigint, 0) + 1)
     WHERE r.run_id = p_run AND r.claim_id = p_claim AND r.status = 'running' AND r.lease_expires_at > clock_timestamp();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'sync % is no longer under this claim', p_run USING ERRCODE = 'TN021';
    END IF;
    PERFORM logbook.add_event(run.item_id, 'scm.sync.failure', NULL, jsonb_build_object('run_id', p_run) || failure);
END $$;

-- One row a task, the figures of the source's metrics. Few rows are read: a task's own, its cursor, and its newest runs.
CREATE OR REPLACE FUNCTION scm.read_metrics()
RETURNS TABLE (repo_id bigint, repo text, source_type text, status text, lag_seconds double precision, cursor_age_seconds double precision,
    is_pending boolean, is_late boolean, runs bigint, failed_runs bigint, error_rate double precision, last_duration_seconds double precision,
    last_batch_seconds double precision)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    SELECT p.repo_id, p.name, t.source_type, t.status,
           -- what the source has and the cursor has not, in time; 0 when it has all of it
           CASE WHEN c.watermark IS NULL OR t.head_watermark IS NULL THEN NULL
                WHEN scm.rank(t.source_type, c.watermark) >= scm.rank(t.source_type, t.head_watermark) THEN 0
                WHEN t.source_type <> 'svn' THEN extract(epoch FROM t.head_ts) - scm.rank(t.source_type, c.watermark)
                ELSE extract(epoch FROM t.head_ts - (SELECT s.ts FROM scm.svn_revisions s WHERE s.repo_id = t.repo_id
                    AND s.rev_num = (c.watermark #>> '{}')::bigint)) END::double precision,
           extract(epoch FROM clock_timestamp() - k.updated_at)::double precision,
           coalesce(o.status IN ('pending', 'retrying'), false) OR coalesce(t.next_run_at <= clock_timestamp(), false),
           coalesce(extract(epoch FROM clock_timestamp() - o.created_at) > coalesce((t.config_json ->> 'max_lag_seconds')::integer, 3600), false),
           coalesce(n.runs, 0), coalesce(n.failed, 0), coalesce(n.failed::double precision / nullif(n.runs, 0), 0),
           n.duration_seconds, n.batch_seconds
      FROM scm.sync_tasks t JOIN scm.repos p USING (repo_id)
     CROSS JOIN LATERAL scm.read_cursor(t) c
      LEFT JOIN logbook.kv k ON k.namespace = 'scm.sync' AND k.key = t.source_type || '_cursor:' || t.repo_id
      LEFT JOIN scm.sync_runs o ON o.task_id = t.task_id AND o.status IN ('pending', 'running', 'retrying')
      LEFT JOIN LATERAL (
        SELECT count(*) AS runs, count(*) FILTER (WHERE q.status IN ('failed', 'exhausted')) AS failed,
               ((array_agg(q.stats_json ->> 'duration_ms' ORDER BY q.started_at DESC))[1])::double precision / 1000 AS duration_seconds,
               ((array_agg(q.stats_json ->> 'last_batch_ms' ORDER BY q.started_at DESC))[1])::double precision / 1000 AS batch_seconds
          FROM (SELECT r.status, r.stats_json, r.started_at FROM scm.sync_runs r WHERE r.task_id = t.task_id AND r.finished_at IS NOT NULL
                   AND r.status <> 'cancelled'
                 ORDER BY r.started_at DESC LIMIT least(100, (scm.setting('scm_error_rate_runs'))::integer)) AS q) AS n ON true
$$;
