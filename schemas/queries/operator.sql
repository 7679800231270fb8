-- name: trigger_job
-- A person's trigger: a repeated key answers with the run that was made first.
SELECT id, state, created
FROM supervisor.trigger_job($1::text, $2::text, $3::text::jsonb, $4::text, $5::timestamptz, $6::integer)

-- name: trigger_jobs
-- A person's trigger of many, in the order of the call.
SELECT id, created
FROM supervisor.trigger_jobs($1::text, $2::text, $3::text[]::jsonb[], $4::text[], $5::timestamptz, $6::integer)
ORDER BY place

-- name: post_event
-- A person's event, once for each dedupe key.
SELECT id, created FROM supervisor.post_event($1::text, $2::text, $3::text::jsonb, $4::text)

-- name: list_events
-- Newest first, by key: each page begins below the last id of the one before.
SELECT e.id, e.type, e.dedupe_key, e.payload, e.created_at, e.processed_at, e.runs, clock_timestamp() AS now
FROM supervisor.event e
WHERE ($1::text IS NULL OR e.type = $1::text) AND e.id < coalesce($2::bigint, 9223372036854775807)
ORDER BY e.id DESC LIMIT $3::integer

-- name: pause_domain
-- False when it was so already.
SELECT supervisor.pause_domain($1::text, $2::text, $3::boolean) AS changed

-- name: list_known_domains
-- Known to whoever asks, to a job, to a replica, or paused; replicas are those heard within $2 seconds.
SELECT n.domain, n.domain = ANY ($1::text[]) AS installed,
    (SELECT count(*) FROM supervisor.worker w WHERE w.state = 'active' AND n.domain = ANY (w.domains)
        AND w.heartbeat_at > clock_timestamp() - make_interval(secs => $2::float8)) AS replicas,
    (SELECT count(*) FROM supervisor.job_definition d WHERE d.domain = n.domain AND d.removed_at IS NULL) AS jobs,
    p.paused_at, p.actor AS paused_by, clock_timestamp() AS now
FROM (SELECT unnest($1::text[]) AS domain
      UNION SELECT d.domain FROM supervisor.job_definition d WHERE d.removed_at IS NULL
      UNION SELECT unnest(w.domains) FROM supervisor.worker w WHERE w.state <> 'gone'
      UNION SELECT q.domain FROM supervisor.domain_pause q) n
LEFT JOIN supervisor.domain_pause p ON p.domain = n.domain
ORDER BY n.domain

-- name: list_settings
-- What all replicas share.
SELECT s.name, s.value, s.least, s.most, s.unit, s.initial, s.updated_at, clock_timestamp() AS now
FROM supervisor.setting s ORDER BY s.name

-- name: find_setting
-- Between what it lies.
SELECT s.least, s.most, s.unit FROM supervisor.setting s WHERE s.name = $1::text

-- name: save_setting
-- The value it had; refused where the name is unknown or the value is out of its bounds.
SELECT supervisor.save_setting($1::text, $2::text, $3::text::jsonb) AS was

-- name: list_audit
-- Newest first, by key.
SELECT a.id, a.at, a.actor, a.action, a.target, a.before, a.after, a.login, clock_timestamp() AS now
FROM supervisor.audit a
WHERE ($1::text IS NULL OR a.target = $1::text) AND a.id < coalesce($2::bigint, 9223372036854775807)
ORDER BY a.id DESC LIMIT $3::integer
