-- The supervisor's own tables. Functions, triggers and grants are re-created after the migrations (functions/).

-- The term of the leader. One row that changes only when leadership changes; the fence locks it.
CREATE TABLE supervisor.leader_epoch (
    one                boolean     PRIMARY KEY DEFAULT true CHECK (one),
    epoch              bigint      NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    first_epoch        bigint      NOT NULL DEFAULT 0 CHECK (first_epoch <= epoch),
    system_identifier  bigint,
    timeline           integer,
    holder             text,
    since              timestamptz,
    quarantine_until   timestamptz
);
INSERT INTO supervisor.leader_epoch DEFAULT VALUES;

-- The hot lease: renewed every few seconds, in a table of its own so that the epoch row stays still.
CREATE TABLE supervisor.leader_lease (
    one                    boolean     PRIMARY KEY DEFAULT true CHECK (one),
    epoch                  bigint      NOT NULL DEFAULT 0,
    holder                 text,
    expires_at             timestamptz NOT NULL DEFAULT '-infinity',
    lease_seconds          double precision NOT NULL DEFAULT 0,
    renewed_at             timestamptz,
    resign_requested_epoch bigint
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
INSERT INTO supervisor.leader_lease DEFAULT VALUES;

CREATE TABLE supervisor.tenure_log (
    id                 bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at                 timestamptz NOT NULL DEFAULT clock_timestamp(),
    epoch              bigint      NOT NULL,
    holder             text        NOT NULL,
    what               text        NOT NULL CHECK (what IN ('ACQUIRED', 'RESIGNED')),
    reason             text,
    system_identifier  bigint,
    timeline           integer
);
CREATE UNIQUE INDEX tenure_log_one_holder ON supervisor.tenure_log (epoch) WHERE what = 'ACQUIRED';

-- One row a replica; one update a heartbeat, whatever it runs. No index on what a beat changes (HOT).
CREATE TABLE supervisor.worker (
    worker_id           text             PRIMARY KEY CHECK (length(worker_id) BETWEEN 1 AND 200),
    state               text             NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'draining', 'gone')),
    domains             text[]           NOT NULL,
    slots               integer          NOT NULL CHECK (slots >= 0),
    heartbeat_at        timestamptz      NOT NULL,
    beat_seq            bigint           NOT NULL DEFAULT 1,
    beat_no             bigint           NOT NULL DEFAULT 0,
    stop_bound_seconds  double precision NOT NULL CHECK (stop_bound_seconds > 0),
    drain_requested_at  timestamptz,
    -- known to that replica alone: nobody else beats, starts or leaves in its name
    secret              uuid             NOT NULL,
    first_seen_at       timestamptz      NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

CREATE TABLE supervisor.job_definition (
    id                   bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name                 text             NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$'),
    domain               text             NOT NULL CHECK (domain ~ '^[a-z][a-z0-9_]{0,62}$'),
    action               text             CHECK (length(action) BETWEEN 1 AND 100),
    payload              jsonb            NOT NULL DEFAULT '{}'
                         CHECK (jsonb_typeof(payload) = 'object' AND octet_length(payload::text) <= 262144),
    enabled              boolean          NOT NULL DEFAULT true,
    priority             integer          NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1000000 AND 1000000),
    max_attempts         integer          NOT NULL DEFAULT 3 CHECK (max_attempts BETWEEN 1 AND 1000),
    timeout_seconds      double precision CHECK (timeout_seconds > 0 AND timeout_seconds <= 31536000),
    concurrency          integer          CHECK (concurrency BETWEEN 1 AND 1000000),
    backoff_seconds      double precision NOT NULL DEFAULT 5 CHECK (backoff_seconds BETWEEN 0 AND 86400),
    backoff_max_seconds  double precision NOT NULL DEFAULT 600 CHECK (backoff_max_seconds BETWEEN 0 AND 604800),
    created_at           timestamptz      NOT NULL DEFAULT clock_timestamp(),
    updated_at           timestamptz      NOT NULL DEFAULT clock_timestamp(),
    removed_at           timestamptz
);
CREATE UNIQUE INDEX job_definition_name ON supervisor.job_definition (name) WHERE removed_at IS NULL;

CREATE SEQUENCE supervisor.job_run_id;

CREATE TABLE supervisor.job_run (
    id                              bigint           PRIMARY KEY DEFAULT nextval('supervisor.job_run_id'),
    root_id                         bigint           NOT NULL,
    job_definition_id               bigint           NOT NULL,
    domain                          text             NOT NULL,
    action                          text,
    payload                         jsonb            NOT NULL,
    state                           text             NOT NULL DEFAULT 'PENDING',
    version                         integer          NOT NULL DEFAULT 1,
    priority                        integer          NOT NULL DEFAULT 0,
    attempt                         integer          NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    starts                          integer          NOT NULL DEFAULT 0,
    max_attempts                    integer          NOT NULL,
    fruitless_assignments           integer          NOT NULL DEFAULT 0,
    timeout_seconds                 double precision,
    backoff_seconds                 double precision NOT NULL DEFAULT 5,
    backoff_max_seconds             double precision NOT NULL DEFAULT 600,
    assigned_epoch                  bigint,
    leader_epoch                    bigint,
    assigned_worker_id              text,
    claim_id                        uuid,
    start_beat_no                   bigint,
    idempotency_key                 text             CHECK (length(idempotency_key) BETWEEN 1 AND 300),
    scheduled_for                   timestamptz,
    not_before                      timestamptz      NOT NULL DEFAULT clock_timestamp(),
    continuation_state              text             NOT NULL DEFAULT 'NONE',
    continuation_reason             text             CHECK (continuation_reason IN ('SILENT', 'NO_LEADER')),
    continuation_check_deadline_at  timestamptz,
    cancel_requested_at             timestamptz,
    executor_stopped_at             timestamptz,
    retry_of_id                     bigint,
    retry_at                        timestamptz,
    next_attempt_id                 bigint,
    created_at                      timestamptz      NOT NULL DEFAULT clock_timestamp(),
    assigned_at                     timestamptz,
    started_at                      timestamptz,
    finished_at                     timestamptz,
    finished_by                     text             CHECK (finished_by IN ('leader', 'worker')),
    result                          jsonb            CHECK (pg_column_size(result) <= 262144),
    error_code                      text             CHECK (length(error_code) <= 200),
    error_message                   text,
    log_ref                         text,
    CONSTRAINT job_run_state CHECK (state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'SUCCEEDED', 'FAILED',
        'TIMED_OUT', 'CANCELED', 'ORPHANED')),
    CONSTRAINT job_run_continuation CHECK (CASE continuation_state
        WHEN 'NONE' THEN continuation_check_deadline_at IS NULL
        WHEN 'CONFIRMING' THEN state = 'RUNNING' AND continuation_check_deadline_at IS NOT NULL
                               AND continuation_reason IS NOT NULL
        ELSE false END),
    CONSTRAINT job_run_starts CHECK (starts >= 0 AND starts <= max_attempts),
    CONSTRAINT job_run_facts CHECK (CASE
        WHEN state = 'PENDING' THEN claim_id IS NULL AND assigned_worker_id IS NULL AND started_at IS NULL
        WHEN state = 'ORPHANED' THEN claim_id IS NULL AND assigned_worker_id IS NULL AND started_at IS NULL
        WHEN state = 'ASSIGNED' THEN claim_id IS NOT NULL AND assigned_worker_id IS NOT NULL
            AND assigned_epoch IS NOT NULL AND assigned_at IS NOT NULL AND started_at IS NULL
        WHEN state = 'RUNNING' THEN claim_id IS NOT NULL AND assigned_worker_id IS NOT NULL
            AND leader_epoch IS NOT NULL AND started_at IS NOT NULL AND start_beat_no IS NOT NULL
        ELSE finished_at IS NOT NULL AND finished_by IS NOT NULL END)
) WITH (fillfactor = 80);
ALTER SEQUENCE supervisor.job_run_id OWNED BY supervisor.job_run.id;

CREATE UNIQUE INDEX job_run_attempt ON supervisor.job_run (root_id, attempt);
CREATE UNIQUE INDEX job_run_one_live ON supervisor.job_run (root_id)
    WHERE state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED');
CREATE UNIQUE INDEX job_run_one_success ON supervisor.job_run (root_id) WHERE state = 'SUCCEEDED';
CREATE UNIQUE INDEX job_run_key ON supervisor.job_run (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX job_run_slot ON supervisor.job_run (job_definition_id, scheduled_for);
CREATE INDEX job_run_created ON supervisor.job_run (created_at);
CREATE INDEX job_run_state_scheduled ON supervisor.job_run (state, scheduled_for)
    WHERE state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED');
CREATE INDEX job_run_worker_state ON supervisor.job_run (assigned_worker_id, state)
    WHERE state IN ('ASSIGNED', 'RUNNING');
CREATE INDEX job_run_due ON supervisor.job_run (domain, priority DESC, not_before, id)
    WHERE state IN ('PENDING', 'ORPHANED');
CREATE INDEX job_run_unstopped ON supervisor.job_run (assigned_worker_id)
    WHERE state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED')
      AND started_at IS NOT NULL AND executor_stopped_at IS NULL;
CREATE INDEX job_run_retry ON supervisor.job_run (retry_at)
    WHERE retry_at IS NOT NULL AND next_attempt_id IS NULL;
CREATE INDEX job_run_cancel ON supervisor.job_run (cancel_requested_at)
    WHERE cancel_requested_at IS NOT NULL AND state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED');
CREATE INDEX job_run_confirming ON supervisor.job_run (continuation_check_deadline_at)
    WHERE continuation_state = 'CONFIRMING';

-- What every run went through, one row a version, by month. Written by triggers only.
CREATE TABLE supervisor.job_run_history (
    run_id              bigint      NOT NULL,
    root_id             bigint      NOT NULL,
    version             integer     NOT NULL,
    from_state          text,
    to_state            text        NOT NULL,
    continuation_state  text        NOT NULL,
    attempt             integer     NOT NULL,
    at                  timestamptz NOT NULL DEFAULT clock_timestamp(),
    worker_id           text,
    leader_epoch        bigint,
    claim_id            uuid,
    actor               text        NOT NULL,
    reason              text,
    PRIMARY KEY (run_id, version, at)
) PARTITION BY RANGE (at);
CREATE TABLE supervisor.job_run_history_default PARTITION OF supervisor.job_run_history DEFAULT;

-- Bodies of logs, apart from the runs so that neither bloats the other.
CREATE TABLE supervisor.job_run_log (
    run_id  bigint      NOT NULL,
    seq     integer     NOT NULL CHECK (seq >= 0),
    stream  text        NOT NULL CHECK (stream IN ('stdout', 'stderr', 'log', 'tenure')),
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    body    text        NOT NULL CHECK (octet_length(body) <= 1048576),
    PRIMARY KEY (run_id, seq)
);

-- Completions that came too late: refused, and kept as evidence.
CREATE TABLE supervisor.late_finish (
    claim_id       uuid        NOT NULL,
    at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    run_id         bigint      NOT NULL,
    worker_id      text        NOT NULL,
    leader_epoch   bigint,
    state          text        NOT NULL,
    result         jsonb,
    error_code     text,
    error_message  text,
    PRIMARY KEY (claim_id, worker_id)
);
CREATE INDEX late_finish_run ON supervisor.late_finish (run_id);

CREATE TABLE supervisor.retry_request (
    run_id        bigint      PRIMARY KEY,
    requested_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor         text        NOT NULL
);

-- A setting says itself what it can be: a number between two bounds, or a switch (no bounds).
CREATE TABLE supervisor.setting (
    name        text        PRIMARY KEY,
    value       jsonb       NOT NULL,
    least       numeric,
    most        numeric,
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT setting_bounds CHECK ((least IS NULL) = (most IS NULL)),
    CONSTRAINT setting_value CHECK (CASE WHEN least IS NULL THEN jsonb_typeof(value) = 'boolean'
        ELSE jsonb_typeof(value) = 'number' AND value::text::numeric BETWEEN least AND most END)
);
INSERT INTO supervisor.setting (name, value, least, most) VALUES
    ('reassign_after_seconds', '60', 0.1, 86400),
    ('max_assignments', '20', 1, 100000),
    ('log_retention_days_db', '7', 0, 36500),
    ('continuation_checks', '3', 1, 1000),
    ('continuation_interval_seconds', '0.3', 0.01, 60);

CREATE TABLE supervisor.audit (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor   text        NOT NULL,
    action  text        NOT NULL,
    target  text        NOT NULL,
    before  jsonb,
    after   jsonb
);
CREATE INDEX audit_at ON supervisor.audit (at);
CREATE INDEX audit_target ON supervisor.audit (target, id);
