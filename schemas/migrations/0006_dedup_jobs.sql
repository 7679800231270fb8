-- What a library is to be put through: scan, hash, delete, thumbnail.
-- run_id: the run that asked for it, whose repetition asks for nothing new
CREATE TABLE dedup.jobs (
    id                  uuid             PRIMARY KEY DEFAULT gen_random_uuid(),
    kind                text             NOT NULL,
    status              text             NOT NULL DEFAULT 'pending',
    library_id          bigint,
    run_id              bigint,
    requested_by        text             NOT NULL DEFAULT '',
    dry_run             boolean          NOT NULL DEFAULT true,
    payload             jsonb            NOT NULL DEFAULT '{}',
    progress            double precision NOT NULL DEFAULT 0,
    total_items         bigint,
    processed_items     bigint           NOT NULL DEFAULT 0,
    retry_count         integer          NOT NULL DEFAULT 0,
    retry_after         timestamptz,
    error_code          text,
    error_message       text,
    worker_id           text,
    worker_heartbeat_at timestamptz,
    lease_expires_at    timestamptz,
    claim_id            uuid,
    created_at          timestamptz      NOT NULL DEFAULT clock_timestamp(),
    updated_at          timestamptz      NOT NULL DEFAULT clock_timestamp(),
    started_at          timestamptz,
    finished_at         timestamptz
);

-- Every move of a job, by whom and why; written by a trigger.
CREATE TABLE dedup.job_moves (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id         uuid        NOT NULL REFERENCES dedup.jobs ON DELETE CASCADE,
    from_status    text,
    to_status      text        NOT NULL,
    worker_id      text,
    error_code     text,
    database_user  text        NOT NULL DEFAULT session_user,
    at             timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- may really delete: off, as long as nobody switched it on
INSERT INTO supervisor.setting (name, value, least, most) VALUES
    ('dedup_allow_real_delete', 'false', NULL, NULL),
    ('dedup_job_retries', '10', 0, 1000);
