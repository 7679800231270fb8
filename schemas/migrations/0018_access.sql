-- Who may use the API and the console. No role reads these tables: functions answer what each needs to know.

CREATE TABLE supervisor.api_token (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name          text        NOT NULL CHECK (name ~ '^[A-Za-z][A-Za-z0-9._-]{0,62}$'),
    role          text        NOT NULL CHECK (role IN ('view', 'operate', 'admin')),
    -- the secret itself is nowhere
    hash          text        NOT NULL CHECK (hash LIKE '$argon2id$%' AND length(hash) <= 200),
    created_by    text        NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at    timestamptz CHECK (expires_at > created_at),
    last_used_at  timestamptz,
    revoked_by    text,
    revoked_at    timestamptz,
    CONSTRAINT api_token_revoked CHECK ((revoked_by IS NULL) = (revoked_at IS NULL))
);
-- a revoked name may be given again
CREATE UNIQUE INDEX api_token_name ON supervisor.api_token (name) WHERE revoked_at IS NULL;

-- A login of the console, known by a digest of its cookie. It stands on a token of ours, whose role and end it has, or
-- on the token of the environment; what that one was is proven by a keyed digest that only the cookie can repeat.
CREATE TABLE supervisor.console_session (
    digest        bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
    token_id      bigint      REFERENCES supervisor.api_token,
    shared_proof  bytea       CHECK (octet_length(shared_proof) = 32),
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at    timestamptz NOT NULL,
    CONSTRAINT console_session_stands CHECK ((token_id IS NULL) <> (shared_proof IS NULL))
);
CREATE INDEX console_session_token ON supervisor.console_session (token_id, created_at);
CREATE INDEX console_session_end ON supervisor.console_session (expires_at);
