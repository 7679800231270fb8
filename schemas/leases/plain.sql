-- name: create_plain
-- a table of an author who has no columns of a lease of his own yet; supervisor/plain_lease.py is its contract
CREATE TABLE {table} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    {columns},
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
CREATE INDEX {name}_claim ON {table} (due_at, id) WHERE status = 'pending';
CREATE INDEX {name}_running ON {table} (id) WHERE status = 'running';
