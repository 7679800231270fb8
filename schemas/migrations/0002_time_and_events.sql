-- When runs come by themselves: cron, events, and what holds them back.

ALTER TABLE supervisor.job_definition
    ADD COLUMN cron                text CHECK (length(cron) BETWEEN 1 AND 200),
    ADD COLUMN timezone            text NOT NULL DEFAULT 'UTC' CHECK (length(timezone) BETWEEN 1 AND 100),
    ADD COLUMN missed              text NOT NULL DEFAULT 'latest' CHECK (missed IN ('skip', 'latest', 'all')),
    ADD COLUMN missed_limit        integer NOT NULL DEFAULT 100 CHECK (missed_limit BETWEEN 1 AND 1000),
    ADD COLUMN event_type          text CHECK (event_type ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$'),
    ADD COLUMN concurrency_policy  text NOT NULL DEFAULT 'allow'
        CHECK (concurrency_policy IN ('allow', 'forbid', 'replace')),
    -- every instant up to here was fired or skipped; it never moves back, so no instant fires twice
    ADD COLUMN fired_until         timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- when to look again; -infinity = the schedule is new
    ADD COLUMN next_fire_at        timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN schedule_error      text,
    ADD CONSTRAINT job_definition_bounded CHECK (concurrency_policy = 'allow' OR concurrency IS NOT NULL);
CREATE INDEX job_definition_next_fire ON supervisor.job_definition (next_fire_at)
    WHERE cron IS NOT NULL AND enabled AND removed_at IS NULL;
CREATE INDEX job_definition_event ON supervisor.job_definition (event_type)
    WHERE event_type IS NOT NULL AND enabled AND removed_at IS NULL;

-- Instants that passed without a run, and why.
CREATE TABLE supervisor.skipped_fire (
    id                 bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at                 timestamptz NOT NULL DEFAULT clock_timestamp(),
    job_definition_id  bigint      NOT NULL,
    reason             text        NOT NULL CHECK (reason IN ('MISSED', 'FORBID', 'DISABLED')),
    first_instant      timestamptz NOT NULL,
    last_instant       timestamptz NOT NULL,
    instants           integer     NOT NULL CHECK (instants > 0)
);
CREATE INDEX skipped_fire_job ON supervisor.skipped_fire (job_definition_id, id);

CREATE TABLE supervisor.event (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    type          text        NOT NULL CHECK (type ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$'),
    payload       jsonb       NOT NULL DEFAULT '{}'
                  CHECK (jsonb_typeof(payload) = 'object' AND octet_length(payload::text) <= 65536),
    dedupe_key    text        CHECK (length(dedupe_key) BETWEEN 1 AND 200),
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    processed_at  timestamptz,
    runs          integer
);
CREATE UNIQUE INDEX event_dedupe ON supervisor.event (dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE INDEX event_unprocessed ON supervisor.event (processed_at, created_at);

CREATE TABLE supervisor.domain_pause (
    domain     text        PRIMARY KEY CHECK (domain ~ '^[a-z][a-z0-9_]{0,62}$'),
    paused_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text        NOT NULL
);

-- What takes a place of a bounded definition is counted without reading its history.
CREATE INDEX job_run_live_of_job ON supervisor.job_run (job_definition_id)
    WHERE state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED');
CREATE INDEX job_run_unstopped_of_job ON supervisor.job_run (job_definition_id)
    WHERE state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED')
      AND started_at IS NOT NULL AND executor_stopped_at IS NULL;
CREATE INDEX job_run_owed_of_job ON supervisor.job_run (job_definition_id)
    WHERE retry_at IS NOT NULL AND next_attempt_id IS NULL;
