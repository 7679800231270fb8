-- Media: the writing, the reading, the health and the rules.

-- name: write_media
-- the one way; repeated under its request id it answers what it answered
SELECT a.request_id, a.decision::text, a.result::text, a.ref_id, a.blob_hash, a.storage_key, a.error_code, a.error_message,
       a.is_replay, a.needs_content
  FROM media.write($1::uuid, $2::text, $3::text, $4::text, $5::boolean, $6::text, $7::text, $8::text, $9::text, $10::integer,
       $11::bigint, $12::text::jsonb, $13::text) AS a;

-- name: put_rendition
-- the worker's way, under its claim; all NULL where the source has ended
SELECT a.request_id, a.decision::text, a.result::text, a.ref_id, a.blob_hash, a.storage_key, a.error_code, a.error_message,
       a.is_replay, a.needs_content
  FROM media.put_rendition($1::bigint, $2::uuid, $3::uuid, $4::text::jsonb) AS a;

-- name: read_rendition
-- no row: there is nothing to make
SELECT r.blob_hash, r.storage_key, r.file_size, r.max_dimension, r.format, r.quality
  FROM media.read_rendition($1::bigint, $2::uuid) AS r;

-- name: withdraw_renditions
-- what was made of a ref that has ended or gone elsewhere
SELECT media.withdraw_renditions($1::bigint, $2::uuid);

-- name: collect_blob
-- the artifact that is to go; NULL: the blob is used, or was never there
SELECT media.collect($1::bigint, $2::uuid);

-- name: tend_media
-- the leader's duty: what is to be looked at again, and what nobody uses
SELECT media.tend($1::bigint);

-- name: read_media_limit
-- bytes that an upload may have
SELECT (s.value)::bigint FROM supervisor.setting AS s WHERE s.name = 'media_max_bytes';

-- name: read_blob
-- a content by its hash
SELECT b.file_hash, b.mime_type, b.file_size, b.storage_key, b.sha256, b.created_at, b.unreferenced_since,
       (SELECT count(*) FROM public.media_refs AS r WHERE r.blob_hash = b.file_hash AND r.deleted_at IS NULL) AS active_refs
  FROM public.media_blobs AS b WHERE b.file_hash = $1::text;

-- name: read_ref
-- ended ones too
SELECT r.id, r.workspace_id, r.entity_type, r.entity_id, r.role, r.position, r.blob_hash, b.mime_type, b.file_size,
       r.source_ref_id, r.rendition, r.created_by, r.created_at, r.updated_at, r.deleted_at
  FROM public.media_refs AS r JOIN public.media_blobs AS b ON b.file_hash = r.blob_hash WHERE r.id = $1::bigint;

-- name: list_refs
-- what an entity has, in one workspace or in all, by slot, behind a slot and a ref
SELECT r.id, r.workspace_id, r.entity_type, r.entity_id, r.role, r.position, r.blob_hash, b.mime_type, b.file_size,
       r.source_ref_id, r.rendition, r.created_by, r.created_at, r.updated_at, r.deleted_at
  FROM public.media_refs AS r JOIN public.media_blobs AS b ON b.file_hash = r.blob_hash
 WHERE ($1::text IS NULL OR r.workspace_id = $1::text) AND r.entity_type = $2::text AND r.entity_id = $3::text
   AND r.deleted_at IS NULL AND ($4::text IS NULL OR r.role = $4::text)
   AND (r.role, r.position, r.id) > ($5::text, $6::integer, $7::bigint)
 ORDER BY r.role, r.position, r.id LIMIT $8::integer;

-- name: list_blob_refs
-- who uses a content, the active ones first
SELECT r.id, r.workspace_id, r.entity_type, r.entity_id, r.role, r.position, r.blob_hash, b.mime_type, b.file_size,
       r.source_ref_id, r.rendition, r.created_by, r.created_at, r.updated_at, r.deleted_at
  FROM public.media_refs AS r JOIN public.media_blobs AS b ON b.file_hash = r.blob_hash
 WHERE r.blob_hash = $1::text ORDER BY r.deleted_at NULLS FIRST, r.id LIMIT $2::integer;

-- name: list_request_events
-- the story of a request, in the order it was written
SELECT e.id, e.created_at, e.event_type::text, e.decision::text, e.result::text, e.error_code, e.error_message, e.actor,
       e.principal, e.workspace_id, e.entity_type, e.entity_id, e.role, e.position, e.blob_hash, e.ref_id, e.payload
  FROM public.media_write_events AS e WHERE e.request_id = $1::uuid ORDER BY e.created_at, e.id;

-- name: find_slot_conflicts
-- more than one active ref in a slot: never
SELECT r.workspace_id, r.entity_type, r.entity_id, r.role, r.position, count(*) AS n
  FROM public.media_refs AS r WHERE r.deleted_at IS NULL
 GROUP BY r.workspace_id, r.entity_type, r.entity_id, r.role, r.position HAVING count(*) > 1 ORDER BY n DESC LIMIT 50;

-- name: find_repeated_blobs
-- one content several times in a role of an entity: allowed, unless media_one_ref_per_blob is set
SELECT r.workspace_id, r.entity_type, r.entity_id, r.role, r.blob_hash, count(*) AS n
  FROM public.media_refs AS r WHERE r.deleted_at IS NULL
 GROUP BY r.workspace_id, r.entity_type, r.entity_id, r.role, r.blob_hash HAVING count(*) > 1 ORDER BY n DESC LIMIT 50;

-- name: find_orphan_refs
-- refs whose blob is not there, ended ones too: never
SELECT r.id, r.blob_hash, r.deleted_at
  FROM public.media_refs AS r LEFT JOIN public.media_blobs AS b ON b.file_hash = r.blob_hash
 WHERE b.file_hash IS NULL LIMIT 50;

-- name: find_disordered_requests
-- of the newest events, requests whose story by time is not request, decision, writes, result
SELECT s.request_id, s.story
  FROM (SELECT e.request_id, string_agg(left(replace(e.event_type::text, 'WRITE_', ''), 3), ' ' ORDER BY e.created_at) AS story
          FROM public.media_write_events AS e
         WHERE e.request_id IN (SELECT n.request_id FROM public.media_write_events AS n ORDER BY n.id DESC LIMIT 2000)
         GROUP BY e.request_id) AS s
 WHERE s.story !~ '^REQ DEC( DB)* RES$' LIMIT 50;

-- name: find_incomplete_requests
-- requests without a decision or a result: never
SELECT p.request_id, p.has_decision, p.has_result
  FROM (SELECT e.request_id, bool_or(e.event_type = 'WRITE_DECISION') AS has_decision,
               bool_or(e.event_type = 'WRITE_RESULT') AS has_result
          FROM public.media_write_events AS e GROUP BY e.request_id) AS p
 WHERE NOT (p.has_decision AND p.has_result) LIMIT 50;

-- name: read_media_policy
-- whether a content may stand once only in a role of an entity
SELECT (s.value)::boolean FROM supervisor.setting AS s WHERE s.name = 'media_one_ref_per_blob';

-- name: read_collection_report
-- what would go, what waits, what went
SELECT (g.value)::boolean AS execute, (d.value)::double precision AS delay_seconds, (k.value)::double precision AS retention_seconds,
       c.blobs, c.bytes, c.due_blobs, c.due_bytes, q.pending, q.running, q.failed, q.removed, q.removed_bytes,
       clock_timestamp() AS now
  FROM supervisor.setting AS g
  JOIN supervisor.setting AS d ON d.name = 'media_gc_delay_seconds'
  JOIN supervisor.setting AS k ON k.name = 'media_ref_retention_seconds'
 CROSS JOIN LATERAL (
    SELECT count(*) AS blobs, coalesce(sum(b.file_size), 0)::bigint AS bytes,
           count(*) FILTER (WHERE u.is_due) AS due_blobs, coalesce(sum(b.file_size) FILTER (WHERE u.is_due), 0)::bigint AS due_bytes
      FROM public.media_blobs AS b
     CROSS JOIN LATERAL (SELECT b.unreferenced_since <= clock_timestamp() - make_interval(secs => (d.value)::double precision)
        AND NOT EXISTS (SELECT FROM public.media_refs AS r WHERE r.blob_hash = b.file_hash
            AND r.deleted_at > clock_timestamp() - make_interval(secs => (k.value)::double precision)) AS is_due) AS u
     WHERE b.unreferenced_since IS NOT NULL) AS c
 CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE n.status = 'pending') AS pending, count(*) FILTER (WHERE n.status = 'running') AS running,
           count(*) FILTER (WHERE n.status = 'failed') AS failed, count(*) FILTER (WHERE n.outcome = 'removed') AS removed,
           coalesce(sum(n.file_size) FILTER (WHERE n.outcome = 'removed'), 0)::bigint AS removed_bytes
      FROM media.collections AS n) AS q
 WHERE g.name = 'media_gc_execute';

-- name: list_collection_candidates
-- contents that nobody uses, the longest unused first
SELECT b.file_hash, b.mime_type, b.file_size, b.unreferenced_since,
       (SELECT count(*) FROM public.media_refs AS r WHERE r.blob_hash = b.file_hash) AS ended_refs
  FROM public.media_blobs AS b WHERE b.unreferenced_since IS NOT NULL
 ORDER BY b.unreferenced_since LIMIT $1::integer;

-- name: request_collection
-- now, and not with the leader's next tick
SELECT media.request_collection($1::text);

-- name: list_media_references
-- which artifacts are contents
SELECT b.blob_no AS id, b.storage_key AS ref, b.sha256, b.file_size AS size
  FROM public.media_blobs AS b WHERE b.blob_no > $1::bigint ORDER BY b.blob_no LIMIT $2::integer;

-- name: list_media_roles
-- what may stand where
SELECT r.role, r.max_position, r.mime_types, r.may_replace, r.is_rendered FROM media.role_rules AS r ORDER BY r.role;

-- name: list_media_renditions
-- what is made of each picture
SELECT n.name, n.max_dimension, n.format, n.quality FROM media.rendition_rules AS n ORDER BY n.name;

-- name: list_media_writers
-- who writes where, of the workspaces that not everybody writes to
SELECT w.workspace_id, array_agg(w.actor ORDER BY w.actor) AS writers FROM media.workspace_writers AS w
 GROUP BY w.workspace_id ORDER BY w.workspace_id;

-- name: save_media_role
-- audited
SELECT media.save_role($1::text, $2::text, $3::integer, $4::text[], $5::boolean, $6::boolean);

-- name: remove_media_role
-- refs in it stay; no new ones come
SELECT media.remove_role($1::text, $2::text);

-- name: save_media_rendition
-- of what is attached from now on
SELECT media.save_rendition($1::text, $2::text, $3::integer, $4::text, $5::integer);

-- name: remove_media_rendition
-- those that were made are withdrawn
SELECT media.remove_rendition($1::text, $2::text);

-- name: save_media_writers
-- exactly these; none: everybody
SELECT media.save_writers($1::text, $2::text, $3::text[]);
