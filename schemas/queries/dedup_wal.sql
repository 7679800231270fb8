-- Checkpoints: who is at it already, what the log looks like, and the work itself. All but
-- the first two run as tenure_maintenance.

-- name: find_checkpoint_worker
-- another row that runs under a live lease: the lease is the lock, no session holds one
SELECT w.id, w.worker_id FROM dedup.wal_maintenance_jobs AS w
 WHERE w.status = 'running' AND w.lease_expires_at > clock_timestamp() AND w.id <> $1::bigint
 ORDER BY w.started_at, w.id LIMIT 1;

-- name: read_truncate_allowed
-- switched off, also where it was on when the job was asked for
SELECT s.value = 'true'::jsonb AS allowed FROM supervisor.setting AS s WHERE s.name = 'dedup_allow_wal_truncate';

-- name: read_maintenance_rights
-- asked before, because CHECKPOINT tells nobody how to get the right
SELECT current_user AS name, pg_has_role('pg_checkpoint', 'USAGE') AS may_checkpoint,
       has_function_privilege('pg_catalog.pg_control_checkpoint()', 'EXECUTE') AS may_read,
       has_function_privilege('pg_catalog.pg_switch_wal()', 'EXECUTE') AS may_switch;

-- name: find_base_backup
-- a backup that began needs the log from its start; of others' sessions the view shows no more than that they are there
SELECT b.pid FROM pg_catalog.pg_stat_progress_basebackup AS b ORDER BY b.pid LIMIT 1;

-- name: read_wal_position
-- where the last checkpoint's redo begins, and how many pages of 8 KiB the log has grown by since
SELECT c.redo_lsn::text AS redo, ceil(pg_wal_lsn_diff(pg_current_wal_lsn(), c.redo_lsn) / 8192)::bigint AS pages
  FROM pg_catalog.pg_control_checkpoint() AS c;

-- name: read_wal_advance
-- the pages by which redo moved on
SELECT greatest(0, ceil(pg_wal_lsn_diff(c.redo_lsn, $1::text::pg_lsn) / 8192))::bigint AS pages
  FROM pg_catalog.pg_control_checkpoint() AS c;

-- name: checkpoint_wal
-- everything before it is in the data files when it returns
CHECKPOINT;

-- name: switch_wal
-- what was written so far can be archived and recycled
SELECT pg_switch_wal() AS lsn;

-- name: find_unvacuumable_tables
-- without the right VACUUM passes over a table with a warning that nobody reads
SELECT c.oid::regclass::text AS name
  FROM unnest(ARRAY['dedup.jobs', 'dedup.library_files', 'dedup.thumbnails', 'dedup.thumbnail_cleanup_jobs',
                    'dedup.wal_maintenance_jobs']) AS t (name)
  JOIN pg_catalog.pg_namespace AS n ON n.nspname = split_part(t.name, '.', 1)
  JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = split_part(t.name, '.', 2)
 WHERE NOT CASE WHEN current_setting('server_version_num')::int >= 170000 THEN has_table_privilege(c.oid, 'MAINTAIN')
                ELSE pg_has_role(c.relowner, 'USAGE') END
 ORDER BY 1;

-- name: vacuum_queues
-- the tables that are claimed from
VACUUM (ANALYZE) dedup.jobs, dedup.library_files, dedup.thumbnails, dedup.thumbnail_cleanup_jobs, dedup.wal_maintenance_jobs;
