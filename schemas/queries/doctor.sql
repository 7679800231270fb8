-- name: read_server_facts
-- What the server is, and what it promises; readable by every role, also before the first migration.
SELECT current_setting('server_version_num')::integer AS version_num, current_setting('server_version') AS version,
    current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('full_page_writes') AS full_page_writes, pg_is_in_recovery() AS standby,
    current_setting('statement_timeout') AS statement_timeout, current_setting('lock_timeout') AS lock_timeout,
    current_setting('idle_in_transaction_session_timeout') AS idle_timeout,
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
        - coalesce(current_setting('reserved_connections', true), '0')::integer AS connections,
    (SELECT count(*) FROM pg_catalog.pg_stat_activity a WHERE a.datid IS NOT NULL) AS connected,
    pg_notification_queue_usage() AS notifications,
    clock_timestamp() AS now

-- name: read_identity
-- Whether the owner of the functions is shown the real identifiers, or stand-ins are in use.
SELECT here.system_identifier, here.timeline,
    has_function_privilege('tenure_owner', 'pg_catalog.pg_control_system()', 'EXECUTE')
    AND has_function_privilege('tenure_owner', 'pg_catalog.pg_current_wal_lsn()', 'EXECUTE')
    AND has_function_privilege('tenure_owner', 'pg_catalog.pg_walfile_name(pg_lsn)', 'EXECUTE') AS shown
FROM supervisor.server_identity() AS here

-- name: read_login
-- Who this URL logs in as, and what that login can do.
SELECT session_user AS name, r.rolsuper AS superuser,
    (SELECT bool_and(has_function_privilege(p.oid, 'EXECUTE')) FROM pg_catalog.pg_proc p
     WHERE p.pronamespace = s.oid AND p.proname IN ('acquire', 'assign', 'enqueue')) AS controls,
    (SELECT bool_and(has_function_privilege(p.oid, 'EXECUTE')) FROM pg_catalog.pg_proc p
     WHERE p.pronamespace = s.oid AND p.proname IN ('start', 'beat', 'finish')) AS works,
    (SELECT bool_or(has_any_column_privilege(c.oid, 'UPDATE')) FROM pg_catalog.pg_class c
     WHERE c.relnamespace = s.oid AND c.relname = 'job_run') AS rewrites,
    -- what a login of tenure_worker alone has not, whatever it inherits: SET ROLE makes all of it its own
    ARRAY(
        SELECT b.what FROM (
            SELECT format('member of %s', m.rolname) AS what FROM pg_catalog.pg_roles m
            WHERE pg_has_role(session_user, m.oid, 'MEMBER') AND m.rolname <> session_user
              AND (m.rolname ~ '^pg_' AND m.rolname NOT IN ('pg_monitor', 'pg_read_all_settings', 'pg_read_all_stats',
                                                            'pg_stat_scan_tables')
                   OR m.rolname IN ('tenure_owner', 'tenure_control', 'tenure_maintenance', 'tenure_console', 'tenure_client'))
            UNION
            SELECT a.name FROM pg_catalog.pg_roles m
            CROSS JOIN LATERAL (VALUES ('SUPERUSER', m.rolsuper), ('CREATEROLE', m.rolcreaterole),
                ('REPLICATION', m.rolreplication), ('BYPASSRLS', m.rolbypassrls)) AS a (name, held)
            WHERE a.held AND pg_has_role(session_user, m.oid, 'MEMBER')
            UNION
            SELECT format('%s on supervisor.%s', p.privilege, c.relname) FROM pg_catalog.pg_class c
            CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE'), ('TRUNCATE'), ('TRIGGER')) AS p (privilege)
            JOIN pg_catalog.pg_roles w ON w.rolname = 'tenure_worker'
            JOIN pg_catalog.pg_roles m ON pg_has_role(session_user, m.oid, 'MEMBER')
            WHERE c.relnamespace = s.oid AND c.relkind IN ('r', 'p', 'v')
              AND CASE WHEN p.privilege IN ('SELECT', 'INSERT', 'UPDATE')
                  THEN has_any_column_privilege(m.oid, c.oid, p.privilege)
                       AND NOT has_any_column_privilege(w.oid, c.oid, p.privilege)
                  ELSE has_table_privilege(m.oid, c.oid, p.privilege)
                       AND NOT has_table_privilege(w.oid, c.oid, p.privilege) END
            UNION
            SELECT format('EXECUTE on supervisor.%s', f.proname) FROM pg_catalog.pg_proc f
            JOIN pg_catalog.pg_roles w ON w.rolname = 'tenure_worker'
            JOIN pg_catalog.pg_roles m ON pg_has_role(session_user, m.oid, 'MEMBER')
            WHERE f.pronamespace = s.oid AND has_function_privilege(m.oid, f.oid, 'EXECUTE')
              AND NOT has_function_privilege(w.oid, f.oid, 'EXECUTE')
        ) b WHERE NOT r.rolsuper ORDER BY b.what LIKE 'EXECUTE%', b.what LIKE '% on %', b.what LIMIT 20) AS beyond
FROM pg_catalog.pg_roles r
LEFT JOIN pg_catalog.pg_namespace s ON s.nspname = 'supervisor'
WHERE r.rolname = session_user

-- name: list_excess_rights
-- Rights to write that a runtime role must not have: it moves runs through functions only.
SELECT format('%s may %s supervisor.%s', r.rolname, p.privilege, c.relname) AS what
FROM pg_catalog.pg_roles r
CROSS JOIN pg_catalog.pg_class c
CROSS JOIN (VALUES ('INSERT'), ('UPDATE'), ('DELETE'), ('TRUNCATE')) AS p (privilege)
WHERE r.rolname IN ('tenure_control', 'tenure_worker', 'tenure_maintenance', 'tenure_console', 'tenure_client')
  AND c.relnamespace = 'supervisor'::regnamespace AND c.relkind IN ('r', 'p')
  AND (c.relname IN ('job_run', 'leader_epoch', 'leader_lease', 'tenure_log', 'worker', 'audit', 'late_finish')
       OR c.relname LIKE 'job\_run\_history%')
  AND CASE WHEN p.privilege IN ('INSERT', 'UPDATE') THEN has_any_column_privilege(r.oid, c.oid, p.privilege)
           ELSE has_table_privilege(r.oid, c.oid, p.privilege) END
ORDER BY 1 LIMIT 20

-- name: list_missing_guards
-- Triggers, indexes and tables that hold the promises, where they are missing or switched off.
SELECT format('trigger %s on %s is %s', g.name, g.relation,
              CASE t.tgenabled WHEN 'D' THEN 'disabled' WHEN 'R' THEN 'for replicas only' ELSE 'missing' END) AS what
FROM (VALUES ('job_run', 'guard'), ('job_run', 'guard_new'), ('job_run', 'record_created'), ('job_run', 'record_moved'),
             ('job_run', 'never_deleted'), ('job_run', 'never_truncated'), ('job_run_history', 'append_only'),
             ('job_run_history', 'append_only_all'), ('tenure_log', 'append_only'), ('tenure_log', 'append_only_all'),
             ('audit', 'append_only'), ('leader_epoch', 'guard'), ('leader_epoch', 'guard_all')) AS g (relation, name)
LEFT JOIN pg_catalog.pg_trigger t
    ON t.tgrelid = to_regclass('supervisor.' || g.relation) AND t.tgname = g.name AND NOT t.tgisinternal
WHERE t.tgenabled IS NULL OR t.tgenabled NOT IN ('O', 'A')
UNION ALL
SELECT format('trigger %s on %s is %s', g.name, g.relation,
              CASE t.tgenabled WHEN 'D' THEN 'disabled' WHEN 'R' THEN 'for replicas only' ELSE 'missing' END)
FROM (VALUES ('dedup.jobs', 'guard'), ('dedup.thumbnails', 'guard'), ('dedup.thumbnail_cleanup_jobs', 'guard'),
             ('dedup.wal_maintenance_jobs', 'guard'), ('dedup.library_files', 'guard'), ('public.media_blobs', 'guard'),
             ('public.media_refs', 'guard'), ('public.media_write_events', 'append_only'),
             ('schedule_ingest.capture_session', 'guard'), ('schedule_ingest.capture_image', 'immutable'),
             ('schedule_ingest.schedule_version', 'guard_new'), ('schedule_ingest.schedule_version', 'immutable'),
             ('schedule_ingest.schedule_version', 'point_to_newest'), ('schedule_ingest.day_schedule', 'guard')) AS g (relation, name)
LEFT JOIN pg_catalog.pg_trigger t ON t.tgrelid = to_regclass(g.relation) AND t.tgname = g.name AND NOT t.tgisinternal
WHERE t.tgenabled IS NULL OR t.tgenabled NOT IN ('O', 'A')
UNION ALL
SELECT format('index %s is missing or not valid', g.name)
FROM (VALUES ('job_run_attempt'), ('job_run_one_live'), ('job_run_one_success'), ('job_run_key'), ('job_run_slot'),
             ('job_run_due'), ('job_run_worker_state'), ('tenure_log_one_holder')) AS g (name)
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_index i
                  WHERE i.indexrelid = to_regclass('supervisor.' || g.name) AND i.indisvalid AND i.indisready)
UNION ALL
SELECT format('table %s is UNLOGGED: a crash would empty it', c.relname)
FROM pg_catalog.pg_class c
WHERE c.relnamespace = 'supervisor'::regnamespace AND c.relkind = 'r' AND c.relpersistence <> 'p'

-- name: list_task_types
-- What the code that migrated last has declared.
SELECT to_jsonb(t) AS task_type FROM supervisor.task_type t ORDER BY t.domain, t.action

-- name: list_jobs_with_callers_programs
-- Among the newest runs, those of older definitions to which a caller gave what belongs to the definition.
SELECT DISTINCT d.name
FROM (SELECT r.job_definition_id, r.payload, r.created_at, r.retry_of_id
      FROM supervisor.job_run r ORDER BY r.created_at DESC LIMIT 10000) n
JOIN supervisor.job_definition d ON d.id = n.job_definition_id
JOIN supervisor.task_type t ON t.domain = d.domain AND t.names_program
WHERE d.removed_at IS NULL AND d.takes IS NULL AND n.created_at > d.updated_at AND n.retry_of_id IS NULL
  AND EXISTS (SELECT FROM unnest(t.own_keys) k WHERE n.payload -> k IS DISTINCT FROM d.payload -> k)
ORDER BY d.name LIMIT 20

-- name: find_double_live
-- Two live attempts of one piece of work.
SELECT r.root_id AS id FROM supervisor.job_run r WHERE (r.state IN ('PENDING', 'ORPHANED') OR r.state IN ('ASSIGNED', 'RUNNING'))
GROUP BY r.root_id HAVING count(*) > 1 LIMIT 10

-- name: find_version_gaps
-- Among the newest runs, those whose history is not one row a version from 1 on.
SELECT r.id
FROM (SELECT n.id, n.version FROM supervisor.job_run n ORDER BY n.created_at DESC LIMIT 1000) r
CROSS JOIN LATERAL (SELECT count(*) AS steps, count(DISTINCT h.version) AS versions, min(h.version) AS first,
                        max(h.version) AS last
                    FROM supervisor.job_run_history h WHERE h.run_id = r.id) h
WHERE (h.steps, h.versions, h.first, h.last) IS DISTINCT FROM (r.version::bigint, r.version::bigint, 1, r.version)
ORDER BY r.id LIMIT 10

-- name: find_epoch_regressions
-- Epochs that did not grow from one leader to the next, and a term older than the log of terms.
SELECT t.epoch AS id
FROM (SELECT n.epoch, lag(n.epoch) OVER (ORDER BY n.id) AS before
      FROM (SELECT l.id, l.epoch FROM supervisor.tenure_log l WHERE l.what = 'ACQUIRED'
            ORDER BY l.id DESC LIMIT 1000) n) t
WHERE t.epoch <= t.before
UNION ALL
SELECT e.epoch FROM supervisor.leader_epoch e WHERE e.epoch < (SELECT max(l.epoch) FROM supervisor.tenure_log l)
LIMIT 10

-- name: find_workerless
-- Running, as the row says, on a worker that has no row.
SELECT r.id FROM supervisor.job_run r
WHERE r.state = 'RUNNING' AND NOT EXISTS (SELECT FROM supervisor.worker w WHERE w.worker_id = r.assigned_worker_id)
ORDER BY r.id LIMIT 10

-- name: find_unexpired
-- Not confirmed in time, and left so for longer than a leader needs to watch and end it.
SELECT r.id FROM supervisor.job_run r
WHERE r.continuation_state = 'CONFIRMING'
  AND r.continuation_check_deadline_at + make_interval(secs => $1::float8 + 10) < clock_timestamp()
ORDER BY r.id LIMIT 10

-- name: read_partitions
-- Is the history of next month prepared, and did any of it fall into the default partition?
SELECT pg_relation_size('supervisor.job_run_history_default') AS default_bytes,
    to_regclass('supervisor.job_run_history_' || to_char((clock_timestamp() AT TIME ZONE 'UTC')
        + interval '1 month', 'YYYYMM')) IS NOT NULL AS next_month
