-- What people and the API ask of the SCM domain. `claim_id` is left out everywhere: who knows it can end the work.

-- name: add_repo
-- $1 actor, $2 name, $3 svn, git or gitlab, $4 url, $5 project key, $6 default branch, $7 config
SELECT r.repo_id, r.name, r.repo_type, r.url, r.project_key, r.default_branch, r.config_json, r.created_at
  FROM scm.add_repo($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text::jsonb) AS r;

-- name: remove_repo
-- $1 actor, $2 name
SELECT scm.remove_repo($1::text, $2::text);

-- name: list_repos
-- all of them, with how much was read
SELECT r.repo_id, r.name, r.repo_type, r.url, r.project_key, r.default_branch, r.config_json, r.created_at, r.updated_at
  FROM scm.repos AS r ORDER BY r.name;

-- name: read_repo
-- one repository by name
SELECT r.repo_id, r.name, r.repo_type, r.url, r.project_key, r.default_branch, r.config_json, r.created_at, r.updated_at,
       (SELECT count(*) FROM scm.svn_revisions AS s WHERE s.repo_id = r.repo_id) AS svn_revisions,
       (SELECT count(*) FROM scm.git_commits AS c WHERE c.repo_id = r.repo_id) AS git_commits,
       (SELECT count(*) FROM scm.mrs AS m WHERE m.repo_id = r.repo_id) AS mrs,
       (SELECT count(*) FROM scm.patch_blobs AS b WHERE b.repo_id = r.repo_id) AS patch_blobs
  FROM scm.repos AS r WHERE r.name = $1::text;

-- name: save_sync_task
-- $1 actor, $2 repo, $3 source, $4 cron ('' takes it away), $5 priority, $6 config; NULL leaves as it is
SELECT t.task_id, t.repo_id, t.source_type, t.status, t.priority, t.cron_expr, t.config_json, t.consecutive_failures, t.next_run_at
  FROM scm.save_task($1::text, $2::text, $3::text, $4::text, $5::integer, $6::text::jsonb) AS t;

-- name: enable_sync_task
-- $1 actor, $2 repo, $3 source
SELECT t.task_id, t.source_type, t.status, t.consecutive_failures, t.next_run_at FROM scm.enable_task($1::text, $2::text, $3::text) AS t;

-- name: disable_sync_task
-- $1 actor, $2 repo, $3 source; an open sync is cancelled
SELECT t.task_id, t.source_type, t.status, t.consecutive_failures, t.next_run_at FROM scm.disable_task($1::text, $2::text, $3::text) AS t;

-- name: request_sync
-- $1 actor, $2 repo, $3 source, $4 mode, $5 range: the open sync, or a new one
SELECT (s.run).run_id, (s.run).task_id, (s.run).status, (s.run).started_at, (s.run).finished_at, (s.run).watermark_start,
       (s.run).watermark_end, (s.run).stats_json, (s.run).error_json, (s.run).worker_id, (s.run).attempts, (s.run).max_attempts,
       (s.run).retry_after, (s.run).mode, (s.run).range_json, (s.run).requested_by, (s.run).requested_by_run, (s.run).created_at, s.created
  FROM scm.request_sync($1::text, $2::text, $3::text, $4::text, $5::text::jsonb, NULL) AS s;

-- name: cancel_sync
-- $1 actor, $2 run
SELECT r.run_id, r.task_id, r.status, r.finished_at, r.error_json FROM scm.cancel_sync($1::text, $2::text) AS r;

-- name: read_sync_run
-- one run by id
SELECT r.run_id, r.task_id, p.name AS repo, t.source_type, r.status, r.started_at, r.finished_at, r.watermark_start, r.watermark_end, r.watermark,
       r.stats_json, r.error_json, r.worker_id, r.attempts, r.max_attempts, r.retry_after, r.mode, r.range_json, r.config_json,
       r.requested_by, r.requested_by_run, r.item_id, r.created_at, r.updated_at
  FROM scm.sync_runs AS r JOIN scm.sync_tasks AS t USING (task_id) JOIN scm.repos AS p USING (repo_id) WHERE r.run_id = $1::text;

-- name: list_sync_moves
-- what a run went through, in order
SELECT m.from_status, m.to_status, m.attempt, m.worker_id, m.error_code, m.database_user, m.at
  FROM scm.sync_run_moves AS m WHERE m.run_id = $1::text ORDER BY m.id;

-- name: list_sync_runs
-- $1 repo or NULL, $2 source or NULL, $3 status or NULL, $4 and $5 the place of the last row of the page before, $6 rows; the newest first
SELECT r.run_id, p.name AS repo, t.source_type, r.status, r.started_at, r.finished_at, r.watermark_start, r.watermark_end, r.stats_json,
       r.error_json, r.worker_id, r.attempts, r.mode, r.requested_by, r.created_at
  FROM scm.sync_runs AS r JOIN scm.sync_tasks AS t USING (task_id) JOIN scm.repos AS p USING (repo_id)
 WHERE ($1::text IS NULL OR p.name = $1::text) AND ($2::text IS NULL OR t.source_type = $2::text) AND ($3::text IS NULL OR r.status = $3::text)
   AND (r.started_at, r.run_id) < (coalesce($4::timestamptz, 'infinity'), coalesce($5::text, ''))
 ORDER BY r.started_at DESC, r.run_id DESC LIMIT $6::integer;

-- name: list_sync_tasks
-- $1 repo or NULL: every task, its cursor and its newest run
SELECT t.task_id, p.name AS repo, t.source_type, t.status, t.priority, t.cron_expr, t.config_json, t.consecutive_failures, t.next_run_at,
       t.last_run_id, r.status AS last_run_status, r.finished_at AS last_run_finished_at, r.error_json AS last_run_error_json,
       k.value AS cursor, t.lock_key, t.head_watermark, t.head_ts
  FROM scm.sync_tasks AS t JOIN scm.repos AS p USING (repo_id)
  LEFT JOIN scm.sync_runs AS r ON r.run_id = t.last_run_id
  LEFT JOIN logbook.kv AS k ON k.namespace = 'scm.sync' AND k.key = t.source_type || '_cursor:' || t.repo_id
 WHERE $1::text IS NULL OR p.name = $1::text
 ORDER BY p.name, t.source_type;

-- name: read_scm_metrics
-- one row a task: lag, age of the cursor, whether it waits, share of failures among its newest runs, durations
SELECT m.repo_id, m.repo, m.source_type, m.status, m.lag_seconds, m.cursor_age_seconds, m.is_pending, m.is_late, m.runs, m.failed_runs,
       m.error_rate, m.last_duration_seconds, m.last_batch_seconds
  FROM scm.read_metrics() AS m;

-- name: list_manifest
-- everything that stands in the store: $1 the last address of the page before, $2 rows
SELECT m.kind, m.source, m.uri, m.sha256, m.size_bytes, m.evidence_uri, m.created_at
  FROM logbook.manifest AS m WHERE m.uri > $1::text ORDER BY m.uri LIMIT $2::integer;

-- name: list_logbook_index
-- the items of the ledger: $1 the last id of the page before, $2 rows
SELECT i.item_id, i.item_type, i.title, i.status, i.project_key, i.created_at, i.updated_at, i.events, i.last_event_at, i.attachments
  FROM logbook.index AS i WHERE i.item_id > $1::bigint ORDER BY i.item_id LIMIT $2::integer;

-- name: read_residues
-- addresses that are no artifact keys; none can be written, some may have come from elsewhere
SELECT 'scm.patch_blobs' AS place, p.blob_id AS id, p.uri FROM scm.patch_blobs AS p WHERE p.uri ~* '^[a-z][a-z0-9+.-]*:'
UNION ALL
SELECT 'logbook.attachments', a.attachment_id, a.uri FROM logbook.attachments AS a WHERE a.uri ~* '^[a-z][a-z0-9+.-]*:';

-- name: page_repos
-- $1 the last name of the page before, $2 rows
SELECT r.repo_id, r.name, r.repo_type, r.url, r.project_key, r.default_branch, r.config_json, r.created_at, r.updated_at
  FROM scm.repos AS r WHERE r.name > $1::text ORDER BY r.name LIMIT $2::integer;

-- name: read_repo_id
-- whether there is one of this name
SELECT r.repo_id FROM scm.repos AS r WHERE r.name = $1::text;

-- name: page_sync_standing
-- $1 repo or NULL, $2 and $3 repo and source of the last row of the page before, $4 rows: tasks with cursor, lag and newest run
SELECT p.name AS repo, t.source_type, t.status, t.priority, t.cron_expr, t.config_json, t.consecutive_failures, t.next_run_at,
       k.value AS cursor, t.head_watermark, t.head_ts, m.lag_seconds, m.cursor_age_seconds, m.is_pending, m.is_late, m.error_rate,
       r.run_id AS last_run_id, r.status AS last_run_status
  FROM scm.sync_tasks AS t JOIN scm.repos AS p USING (repo_id)
  LEFT JOIN scm.read_metrics() AS m ON m.repo_id = t.repo_id AND m.source_type = t.source_type
  LEFT JOIN scm.sync_runs AS r ON r.run_id = t.last_run_id
  LEFT JOIN logbook.kv AS k ON k.namespace = 'scm.sync' AND k.key = t.source_type || '_cursor:' || t.repo_id
 WHERE ($1::text IS NULL OR p.name = $1::text) AND (p.name, t.source_type::text) > ($2::text, $3::text)
 ORDER BY p.name, t.source_type::text LIMIT $4::integer;

-- name: page_evidence
-- $1 repo, $2 revision or commit or NULL, $3 the last id of the page before, $4 rows: its diffs
SELECT b.blob_id AS id, b.meta_json ->> 'evidence_uri' AS evidence_uri, split_part(b.source_id, ':', 2) AS record, b.uri AS key, b.sha256,
       b.size_bytes, b.created_at
  FROM scm.patch_blobs AS b JOIN scm.repos AS p USING (repo_id)
 WHERE p.name = $1::text AND ($2::text IS NULL OR b.source_id = p.repo_id || ':' || $2::text) AND b.blob_id > $3::bigint
 ORDER BY b.blob_id LIMIT $4::integer;

-- name: attach_evidence
-- $1 actor, $2 item, $3 kind, $4 key, $5 sha256, $6 bytes: the same evidence of an item is there once
SELECT a.evidence_uri FROM logbook.attach($1::text, $2::bigint, $3::text, $4::text, $5::text, $6::bigint, '{}') AS a;

-- name: read_logbook_item
-- whether there is such an item
SELECT i.item_id FROM logbook.items AS i WHERE i.item_id = $1::bigint;
