-- What the workers of the SCM domain and the leader ask; each moves nothing without its claim or epoch. JSON goes in as text.

-- name: make_due_syncs
-- the leader's part: tasks whose time has come, and what was lost with its worker
SELECT scm.make_due_runs($1::bigint);

-- name: recover_syncs
-- the leader's part: running rows whose lease is of no use
SELECT scm.recover_runs($1::bigint);

-- name: purge_syncs
-- the leader's part: runs that ended long ago
SELECT scm.purge_runs($1::bigint);

-- name: cancel_syncs_of_ended_runs
-- the leader's part: syncs whose run was cancelled while nobody worked on it
SELECT scm.cancel_for_ended_runs($1::bigint);

-- name: request_sync_for_run
-- $1 run, $2 its claim, $3 repo, $4 source, $5 options: the same run gets the same sync, however often it asks
SELECT (s.run).run_id, (s.run).status, (s.run).mode, (s.run).attempts, (s.run).stats_json, (s.run).watermark_end, (s.run).error_json,
       (s.run).finished_at, s.created
  FROM scm.request_for_run($1::bigint, $2::uuid, $3::text, $4::text, $5::text::jsonb) AS s;

-- name: cancel_syncs_for_run
-- a run that was asked to stop takes them along
SELECT scm.cancel_for_run($1::bigint, $2::uuid);

-- name: read_sync_of_run
-- how it stands, for whoever waits for it
SELECT r.run_id, r.status, r.mode, r.attempts, r.stats_json, r.watermark_end, r.error_json, r.finished_at
  FROM scm.sync_runs AS r WHERE r.run_id = $1::text;

-- name: begin_sync
-- $3 how often this worker's configuration retries: what to read, from where on
SELECT b.repo_id, b.repo, b.repo_type, b.url, b.project_key, b.default_branch, b.repo_config, b.source_type, b.config, b.mode, b.range,
       b.watermark, b.origin, b.state, b.batches, b.attempt, b.lock_key
  FROM scm.begin_sync($1::text, $2::uuid, $3::integer) AS b;

-- name: record_svn
-- $3 number of the batch, $4 facts, $5 watermark or NULL, $6 state of the source or NULL
SELECT b.inserted, b.updated, b.skipped, b.is_new
  FROM scm.record_svn($1::text, $2::uuid, $3::integer, $4::text::jsonb, $5::text::jsonb, $6::text::jsonb) AS b;

-- name: record_git
-- as record_svn
SELECT b.inserted, b.updated, b.skipped, b.is_new
  FROM scm.record_git($1::text, $2::uuid, $3::integer, $4::text::jsonb, $5::text::jsonb, $6::text::jsonb) AS b;

-- name: record_mrs
-- as record_svn
SELECT b.inserted, b.updated, b.skipped, b.is_new
  FROM scm.record_mrs($1::text, $2::uuid, $3::integer, $4::text::jsonb, $5::text::jsonb, $6::text::jsonb) AS b;

-- name: record_reviews
-- $4 the merge requests that $5, the events, are about; then as record_svn
SELECT b.inserted, b.updated, b.skipped, b.is_new
  FROM scm.record_reviews($1::text, $2::uuid, $3::integer, $4::text::jsonb, $5::text::jsonb, $6::text::jsonb, $7::text::jsonb) AS b;

-- name: note_sync_head
-- the newest that the source has: $3 as a watermark, $4 as a time
SELECT scm.note_head($1::text, $2::uuid, $3::text::jsonb, $4::timestamptz);

-- name: note_sync_failure
-- $3 what could not be read, $4 code, $5 message; the sync goes on
SELECT scm.note_failure($1::text, $2::uuid, $3::text, $4::text, $5::text);
