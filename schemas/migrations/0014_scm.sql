-- Repositories, what was read out of them, and how far the reading got.
CREATE SCHEMA scm;

-- config_json: gitlab_url, project_id, token_env (the NAME of a variable); never a secret.
CREATE TABLE scm.repos (
    repo_id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name            text        NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$'),
    repo_type       text        NOT NULL CHECK (repo_type IN ('svn', 'git')),
    url             text        NOT NULL CHECK (url <> '' AND url !~ '[[:cntrl:]]'),
    project_key     text        NOT NULL DEFAULT '',
    default_branch  text        CHECK (default_branch <> ''),
    config_json     jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(config_json) = 'object'),
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (repo_type, url),
    CONSTRAINT repo_branch CHECK (repo_type = 'git' OR default_branch IS NULL),
    -- user names may stand in an address (ssh://git@...), passwords may not
    CONSTRAINT repo_without_secrets CHECK (url !~ '://[^/?#]*:[^/?#]*@'
        AND NOT config_json ?| '{token,private_token,access_token,password,secret}'
        AND coalesce(config_json ->> 'token_env', 'T') ~ '^[A-Za-z_][A-Za-z0-9_]{0,99}$'),
    CONSTRAINT repo_project CHECK (NOT config_json ? 'project_id' OR config_json ->> 'project_id' ~ '^[1-9][0-9]{0,17}$')
);

CREATE TABLE scm.svn_revisions (
    repo_id         bigint      NOT NULL REFERENCES scm.repos ON DELETE CASCADE,
    rev_num         bigint      NOT NULL CHECK (rev_num >= 0),
    rev_id          bigint      GENERATED ALWAYS AS (rev_num) STORED,
    author_raw      text        NOT NULL DEFAULT '',
    author_user_id  text        REFERENCES identity.users ON DELETE SET NULL,
    ts              timestamptz,
    message         text        NOT NULL DEFAULT '',
    is_bulk         boolean     NOT NULL DEFAULT false,
    bulk_reason     text,
    meta_json       jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(meta_json) = 'object'),
    source_id       text        GENERATED ALWAYS AS ('svn:' || repo_id::text || ':' || rev_num::text) STORED,
    run_id          varchar(50) NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (repo_id, rev_num),
    CONSTRAINT revision_bulk CHECK (is_bulk = (bulk_reason IS NOT NULL) AND bulk_reason ~ '^[a-z_]+:[0-9]+$')
);

CREATE TABLE scm.git_commits (
    repo_id         bigint      NOT NULL REFERENCES scm.repos ON DELETE CASCADE,
    commit_sha      text        NOT NULL CHECK (commit_sha ~ '^([0-9a-f]{40}|[0-9a-f]{64})$'),
    author_raw      text        NOT NULL DEFAULT '',
    author_user_id  text        REFERENCES identity.users ON DELETE SET NULL,
    ts              timestamptz NOT NULL,
    message         text        NOT NULL DEFAULT '',
    is_merge        boolean     NOT NULL DEFAULT false,
    is_bulk         boolean     NOT NULL DEFAULT false,
    bulk_reason     text,
    meta_json       jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(meta_json) = 'object'),
    source_id       text        GENERATED ALWAYS AS ('git:' || repo_id::text || ':' || commit_sha) STORED,
    run_id          varchar(50) NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (repo_id, commit_sha),
    CONSTRAINT commit_bulk CHECK (is_bulk = (bulk_reason IS NOT NULL) AND bulk_reason ~ '^[a-z_]+:[0-9]+$'),
    CONSTRAINT commit_merge CHECK (is_merge = (coalesce(jsonb_array_length(meta_json -> 'parent_ids'), 0) > 1))
);
CREATE INDEX git_commits_ts ON scm.git_commits (repo_id, ts);

-- One diff a revision or commit; the bytes are an artifact.
CREATE TABLE scm.patch_blobs (
    blob_id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source_type  text        NOT NULL CHECK (source_type IN ('svn', 'git')),
    source_id    text        NOT NULL,
    repo_id      bigint      NOT NULL REFERENCES scm.repos ON DELETE CASCADE,
    uri          text        NOT NULL,
    sha256       text        NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    size_bytes   bigint      NOT NULL CHECK (size_bytes >= 0),
    format       text        NOT NULL DEFAULT 'diff' CHECK (format = 'diff'),
    meta_json    jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(meta_json) = 'object'),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (source_type, source_id),
    CONSTRAINT patch_source CHECK (CASE source_type
        WHEN 'svn' THEN source_id ~ '^[0-9]+:[0-9]+$'
        ELSE source_id ~ '^[0-9]+:([0-9a-f]{40}|[0-9a-f]{64})$' END AND split_part(source_id, ':', 1) = repo_id::text),
    CONSTRAINT patch_key CHECK (uri !~* '^[a-z][a-z0-9+.-]*:' AND uri !~ '^/' AND uri !~ '(^|/)\.\.?(/|$)'
        AND uri !~ '\\' AND uri <> ''),
    CONSTRAINT patch_evidence CHECK (meta_json ->> 'evidence_uri' IS NOT DISTINCT FROM
        'memory://patch_blobs/' || source_type || '/' || source_id || '/' || sha256)
);
CREATE INDEX patch_blobs_repo ON scm.patch_blobs (repo_id);
CREATE INDEX patch_blobs_uri ON scm.patch_blobs (uri text_pattern_ops);

CREATE TABLE scm.mrs (
    mr_id              text        PRIMARY KEY,
    repo_id            bigint      NOT NULL REFERENCES scm.repos ON DELETE CASCADE,
    iid                bigint      NOT NULL CHECK (iid > 0),
    author_raw         text        NOT NULL DEFAULT '',
    author_user_id     text        REFERENCES identity.users ON DELETE SET NULL,
    status             text        NOT NULL CHECK (status IN ('opened', 'closed', 'locked', 'merged')),
    url                text        NOT NULL DEFAULT '',
    meta_json          jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(meta_json) = 'object'),
    source_id          text        GENERATED ALWAYS AS ('mr:' || repo_id::text || ':' || iid::text) STORED,
    source_created_at  timestamptz,
    source_updated_at  timestamptz,
    run_id             varchar(50) NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT mr_named CHECK (mr_id = repo_id::text || ':' || iid::text)
);
CREATE INDEX mrs_updated ON scm.mrs (repo_id, source_updated_at);

CREATE TABLE scm.review_events (
    review_event_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    mr_id             text        NOT NULL REFERENCES scm.mrs ON DELETE CASCADE,
    source_event_id   text        NOT NULL CHECK (source_event_id ~ '^(note|approval|state):.'),
    reviewer_raw      text        NOT NULL DEFAULT '',
    reviewer_user_id  text        REFERENCES identity.users ON DELETE SET NULL,
    event_type        text        NOT NULL CHECK (event_type IN ('comment', 'approve', 'request_changes')),
    ts                timestamptz NOT NULL,
    payload_json      jsonb       NOT NULL DEFAULT '{}',
    run_id            varchar(50) NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (mr_id, source_event_id)
);

CREATE TABLE scm.sync_tasks (
    task_id               uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    repo_id               bigint      NOT NULL REFERENCES scm.repos ON DELETE CASCADE,
    source_type           varchar(20) NOT NULL CHECK (source_type IN ('svn', 'git', 'gitlab_mr', 'gitlab_review')),
    status                varchar(20) NOT NULL DEFAULT 'pending' CHECK (status IN ('disabled', 'pending', 'running', 'failed')),
    priority              integer     NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1000000 AND 1000000),
    cron_expr             varchar(50),
    config_json           jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(config_json) = 'object'),
    created_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    consecutive_failures  integer     NOT NULL DEFAULT 0 CHECK (consecutive_failures >= 0),
    -- when the leader makes a run by itself; NULL: not by itself
    next_run_at           timestamptz CHECK (isfinite(next_run_at)),
    last_run_id           varchar(50),
    -- the newest that the source itself had when it was looked at last
    head_watermark        jsonb,
    head_ts               timestamptz,
    head_at               timestamptz,
    lock_key              text        GENERATED ALWAYS AS ('scm_sync:' || repo_id::text || ':' || source_type::text) STORED
);
CREATE UNIQUE INDEX idx_sync_tasks_repo_type ON scm.sync_tasks (repo_id, source_type);
CREATE INDEX idx_sync_tasks_status ON scm.sync_tasks (status) WHERE status IN ('pending', 'running');
CREATE INDEX sync_tasks_due ON scm.sync_tasks (next_run_at) WHERE next_run_at IS NOT NULL;

-- One execution of a task, its attempts counted inside. The row is the lock: at most one of a task is open.
CREATE TABLE scm.sync_runs (
    run_id               varchar(50)  PRIMARY KEY,
    task_id              uuid         NOT NULL REFERENCES scm.sync_tasks ON DELETE CASCADE,
    status               varchar(20)  NOT NULL DEFAULT 'pending' CHECK (status IN
                         ('pending', 'running', 'completed', 'failed', 'retrying', 'exhausted', 'cancelled')),
    started_at           timestamptz  NOT NULL DEFAULT clock_timestamp(),
    finished_at          timestamptz,
    watermark_start      jsonb        NOT NULL DEFAULT 'null',
    watermark_end        jsonb,
    stats_json           jsonb        NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(stats_json) = 'object'),
    error_json           jsonb,
    worker_id            varchar(100),
    worker_heartbeat_at  timestamptz,
    lease_expires_at     timestamptz,
    claim_id             uuid,
    -- of its task, for the claim: what comes first, and which workers are meant
    priority             integer      NOT NULL DEFAULT 0,
    source_type          varchar(20)  NOT NULL CHECK (source_type IN ('svn', 'git', 'gitlab_mr', 'gitlab_review')),
    attempts             integer      NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    max_attempts         integer      NOT NULL DEFAULT 4 CHECK (max_attempts BETWEEN 1 AND 11),
    retry_after          timestamptz,
    error_code           text,
    error_message        text,
    mode                 text         NOT NULL DEFAULT 'incremental' CHECK (mode IN ('incremental', 'backfill')),
    range_json           jsonb        NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(range_json) = 'object'),
    -- the task's configuration as it was when the run was made
    config_json          jsonb        NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(config_json) = 'object'),
    requested_by         text         NOT NULL DEFAULT '',
    requested_by_run     bigint,
    -- how often in a row its kind was lost with its worker before anything was written
    losses               integer      NOT NULL DEFAULT 0 CHECK (losses >= 0),
    batches              integer      NOT NULL DEFAULT 0 CHECK (batches >= 0),
    watermark            jsonb,
    item_id              bigint       REFERENCES logbook.items,
    created_at           timestamptz  NOT NULL DEFAULT clock_timestamp(),
    updated_at           timestamptz  NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT run_ended CHECK (status NOT IN ('completed', 'exhausted', 'cancelled') OR finished_at IS NOT NULL),
    CONSTRAINT run_watermark_end CHECK (watermark_end IS NULL OR status = 'completed'),
    CONSTRAINT run_counts CHECK ((stats_json ->> 'fetched')::bigint = (stats_json ->> 'inserted')::bigint
        + (stats_json ->> 'updated')::bigint + (stats_json ->> 'skipped')::bigint)
);
CREATE INDEX idx_sync_runs_task_started ON scm.sync_runs (task_id, started_at DESC);
CREATE INDEX idx_sync_runs_status ON scm.sync_runs (status) WHERE status = 'running';
-- the lock of a repository and source
CREATE UNIQUE INDEX sync_runs_one_open ON scm.sync_runs (task_id) WHERE status IN ('pending', 'running', 'retrying');
CREATE INDEX sync_runs_claim ON scm.sync_runs (priority DESC, created_at, run_id) WHERE status IN ('pending', 'retrying');
CREATE INDEX sync_runs_running ON scm.sync_runs (run_id) WHERE status = 'running';
CREATE INDEX sync_runs_completed ON scm.sync_runs (task_id, finished_at DESC) WHERE status = 'completed';
CREATE INDEX sync_runs_finished ON scm.sync_runs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX sync_runs_of_run ON scm.sync_runs (requested_by_run, task_id) WHERE requested_by_run IS NOT NULL;

-- Every move of a run, by whom and why; written by triggers, removed only with the run by retention.
CREATE TABLE scm.sync_run_moves (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id         varchar(50) NOT NULL,
    from_status    text,
    to_status      text        NOT NULL,
    attempt        integer     NOT NULL,
    worker_id      text,
    error_code     text,
    database_user  text        NOT NULL DEFAULT session_user,
    at             timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX sync_run_moves_run ON scm.sync_run_moves (run_id, id);

-- Where the numbers of a day begin. The sequence never repeats a number, so nobody waits for anybody but for a day's first.
CREATE SEQUENCE scm.run_number;
CREATE TABLE scm.run_days (
    day   date   PRIMARY KEY,
    base  bigint NOT NULL
);

-- For people and for the recovery of rows without a lease: who was heard of when, and who holds which lock.
CREATE VIEW scm.worker_heartbeats AS SELECT w.worker_id, w.heartbeat_at AS last_seen FROM supervisor.worker AS w;
CREATE VIEW scm.sync_locks AS
SELECT t.lock_key, r.run_id, r.worker_id, r.started_at AS held_since, r.lease_expires_at
  FROM scm.sync_runs AS r JOIN scm.sync_tasks AS t USING (task_id) WHERE r.status = 'running';

-- Everything that stands in the store, with its digest.
CREATE VIEW logbook.manifest AS
SELECT 'patch_blobs' AS kind, p.source_type || ':' || p.source_id AS source, p.uri, p.sha256, p.size_bytes,
       p.meta_json ->> 'evidence_uri' AS evidence_uri, p.created_at FROM scm.patch_blobs AS p
UNION ALL
SELECT 'attachments', a.item_id::text || ':' || a.kind, a.uri, a.sha256, a.size_bytes, a.evidence_uri, a.created_at
  FROM logbook.attachments AS a;

INSERT INTO supervisor.setting (name, value, least, most) VALUES
    ('scm_failure_threshold', '5', 1, 1000),
    ('scm_stale_run_seconds', '3600', 1, 604800),
    ('scm_stale_worker_seconds', '300', 1, 86400),
    ('scm_run_history_days', '90', 7, 365),
    ('scm_error_rate_runs', '100', 1, 10000);
