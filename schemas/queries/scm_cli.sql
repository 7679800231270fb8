-- What the command line asks of the SCM domain beyond scm_read.sql.

-- name: list_sync_standing
-- $1 repo or NULL: every task with its cursor, how far it is behind, and its newest run
SELECT p.name AS repo, t.source_type, t.status, t.priority, t.cron_expr, t.config_json, t.consecutive_failures, t.next_run_at,
       k.value AS cursor, t.head_watermark, t.head_ts, m.lag_seconds, m.cursor_age_seconds, m.is_pending, m.is_late, m.error_rate,
       r.run_id AS last_run_id, r.status AS last_run_status, r.mode AS last_run_mode, r.started_at AS last_run_started_at,
       r.finished_at AS last_run_finished_at, r.stats_json AS last_run_stats_json, r.error_json AS last_run_error_json,
       r.retry_after AS last_run_retry_after, clock_timestamp() AS now
  FROM scm.sync_tasks AS t JOIN scm.repos AS p USING (repo_id)
  LEFT JOIN scm.read_metrics() AS m ON m.repo_id = t.repo_id AND m.source_type = t.source_type
  LEFT JOIN scm.sync_runs AS r ON r.run_id = t.last_run_id
  LEFT JOIN logbook.kv AS k ON k.namespace = 'scm.sync' AND k.key = t.source_type || '_cursor:' || t.repo_id
 WHERE $1::text IS NULL OR p.name = $1::text
 ORDER BY p.name, t.source_type;

-- name: read_sync_successor
-- $1 a run that was lost with its worker: the one that goes on in its place, and whether there will be one
SELECT CASE WHEN t.last_run_id <> r.run_id THEN t.last_run_id END AS run_id, t.next_run_at IS NOT NULL AS is_due
  FROM scm.sync_runs AS r JOIN scm.sync_tasks AS t USING (task_id) WHERE r.run_id = $1::text;

-- name: read_scm_workforce
-- who could work: is there a leader, and how many replicas of this domain were heard within $1 seconds
SELECT EXISTS (SELECT FROM supervisor.leader_lease AS l WHERE l.expires_at > clock_timestamp()) AS has_leader,
       (SELECT count(*) FROM supervisor.worker AS w WHERE w.state = 'active' AND 'scm' = ANY (w.domains)
           AND w.heartbeat_at > clock_timestamp() - make_interval(secs => $1::double precision)) AS replicas;

-- name: read_patch_blob
-- $1 svn or git, $2 repository and revision: where a diff is kept
SELECT b.uri, b.sha256, b.size_bytes FROM scm.patch_blobs AS b WHERE b.source_type = $1::text AND b.source_id = $2::text;

-- name: read_attachment
-- $1 attachment: where its content is kept
SELECT a.uri, a.sha256, a.size_bytes FROM logbook.attachments AS a WHERE a.attachment_id = $1::bigint;

-- name: walk_evidence
-- $1 repo or NULL, $2 the last id of the page before, $3 rows: diffs and what is recorded of them
SELECT b.blob_id AS id, b.uri, b.sha256, b.size_bytes, b.meta_json ->> 'evidence_uri' AS evidence_uri
  FROM scm.patch_blobs AS b JOIN scm.repos AS p USING (repo_id)
 WHERE ($1::text IS NULL OR p.name = $1::text) AND b.blob_id > $2::bigint ORDER BY b.blob_id LIMIT $3::integer;

-- name: walk_attached_evidence
-- $1 the last id of the page before, $2 rows: attachments and what is recorded of them
SELECT a.attachment_id AS id, a.uri, a.sha256, a.size_bytes, a.evidence_uri
  FROM logbook.attachments AS a WHERE a.attachment_id > $1::bigint ORDER BY a.attachment_id LIMIT $2::integer;

-- name: list_role_profiles
-- whose roles there are, without their text
SELECT r.user_id, r.role, r.labels, r.sha256, r.source, r.updated_at FROM identity.role_profiles AS r ORDER BY r.user_id, r.role;
