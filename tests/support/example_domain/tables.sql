-- Three claimable tables of an example domain: stale work is set aside, stays for another owner, or goes back.
CREATE SCHEMA example;

CREATE TABLE example.jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('scan', 'hash', 'delete')),
    payload jsonb NOT NULL DEFAULT '{}',
    dry_run boolean NOT NULL DEFAULT true,
    status text NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'retryable')),
    processed_items bigint NOT NULL DEFAULT 0,
    progress double precision NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 1),
    worker_id text,
    worker_heartbeat_at timestamptz,
    lease_expires_at timestamptz,
    claim_id uuid,
    error_code text,
    error_message text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    finished_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ix_jobs_claim ON example.jobs (created_at, id) WHERE status = 'pending';
CREATE INDEX ix_jobs_running ON example.jobs (id) WHERE status = 'running';

CREATE TYPE example.session_state AS ENUM ('pending', 'processing', 'done', 'failed');
CREATE TABLE example.sessions (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id bigint NOT NULL,
    state example.session_state NOT NULL DEFAULT 'pending',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    error text CHECK (error IS NULL OR state = 'failed'),
    locked_at timestamptz,
    locked_by text,
    claim_id uuid
);
CREATE INDEX ix_sessions_claim ON example.sessions (created_at, id) WHERE state = 'pending';
CREATE INDEX ix_sessions_running ON example.sessions (created_at, id) WHERE state = 'processing';
CREATE TABLE example.notes (session_id uuid PRIMARY KEY REFERENCES example.sessions, body text NOT NULL);

CREATE TABLE example.thumbs (
    library_id integer NOT NULL,
    file_id bigint NOT NULL,
    path text NOT NULL DEFAULT '',
    status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'running', 'ready', 'failed', 'dead')),
    priority integer NOT NULL DEFAULT 0,
    width integer,
    height integer,
    error_count integer NOT NULL DEFAULT 0,
    error_code text,
    error_message text,
    retry_after timestamptz,
    worker_id text,
    worker_heartbeat_at timestamptz,
    lease_expires_at timestamptz,
    claim_id uuid,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (library_id, file_id)
);
CREATE INDEX ix_thumbs_claim ON example.thumbs (priority DESC, library_id, file_id) WHERE status = 'pending';
CREATE INDEX ix_thumbs_running ON example.thumbs (library_id, file_id) WHERE status = 'running';
