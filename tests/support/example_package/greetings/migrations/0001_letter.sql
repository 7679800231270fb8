CREATE SCHEMA greetings;

CREATE TABLE greetings.letter (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- what the work is about, and what becomes of it
    name text NOT NULL,
    greeting text,
    -- what every plain lease has
    status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'running', 'done', 'failed')),
    failures integer NOT NULL DEFAULT 0,
    due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    worker_id text,
    worker_heartbeat_at timestamptz,
    lease_expires_at timestamptz,
    claim_id uuid,
    error_code text,
    error_message text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    CHECK (status <> 'running' OR (worker_id IS NOT NULL AND worker_heartbeat_at IS NOT NULL AND claim_id IS NOT NULL))
);
CREATE INDEX letter_claim ON greetings.letter (due_at, id) WHERE status = 'pending';
CREATE INDEX letter_running ON greetings.letter (id) WHERE status = 'running';

-- the replicas' rights come from the lease; these are the application's
GRANT USAGE ON SCHEMA greetings TO tenure_client;
GRANT SELECT, INSERT (name) ON greetings.letter TO tenure_client;
