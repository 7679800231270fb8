-- name: list_log_references
-- Logs that were moved out; the name of each ends with the beginning of its digest.
SELECT r.id, r.log_ref AS ref, substring(r.log_ref FROM '-([0-9a-f]{32})\.jsonl\.gz$') AS sha256, NULL::bigint AS size
FROM supervisor.job_run r
WHERE r.log_ref IS NOT NULL AND r.id > $1::bigint
ORDER BY r.id LIMIT $2::integer

-- name: list_discarded_references
-- Artifacts on the list of the leader, who removes them himself.
SELECT d.id, d.uri AS ref, NULL::text AS sha256, NULL::bigint AS size
FROM supervisor.discarded_artifact d
WHERE d.id > $1::bigint
ORDER BY d.id LIMIT $2::integer

-- name: list_patch_references
-- Diffs of revisions and commits.
SELECT p.blob_id AS id, p.uri AS ref, p.sha256, p.size_bytes AS size
FROM scm.patch_blobs p
WHERE p.blob_id > $1::bigint
ORDER BY p.blob_id LIMIT $2::integer

-- name: list_attachment_references
-- What is attached to items of the logbook.
SELECT a.attachment_id AS id, a.uri AS ref, a.sha256, a.size_bytes AS size
FROM logbook.attachments a
WHERE a.attachment_id > $1::bigint
ORDER BY a.attachment_id LIMIT $2::integer
