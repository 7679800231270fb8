-- Pictures of a person's schedule, and the versions that were read from them. A session is a set of pictures that were taken
-- together; reading it makes the next version of one day. Names and states are those of the schema that applications know.
CREATE SCHEMA schedule_ingest;

CREATE TYPE schedule_ingest.capture_session_state AS ENUM ('pending', 'processing', 'done', 'failed');

CREATE TABLE schedule_ingest.capture_session (
    id         uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    user_id    bigint      NOT NULL,
    state      schedule_ingest.capture_session_state NOT NULL DEFAULT 'pending',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    error      text,
    locked_at  timestamptz,
    locked_by  text,
    -- the token of the claim: two claims by one worker are two
    claim_id   uuid,
    CONSTRAINT capture_session_error CHECK ((state = 'failed') = (error IS NOT NULL)),
    CONSTRAINT capture_session_lease CHECK ((state = 'processing') = (locked_by IS NOT NULL AND locked_at IS NOT NULL)),
    CONSTRAINT capture_session_unlocked CHECK (state = 'processing' OR (locked_by IS NULL AND locked_at IS NULL))
);
CREATE INDEX capture_session_claim ON schedule_ingest.capture_session (created_at, id) WHERE state = 'pending';
CREATE INDEX capture_session_running ON schedule_ingest.capture_session (created_at, id) WHERE state = 'processing';
CREATE INDEX capture_session_newest ON schedule_ingest.capture_session (created_at, id);
CREATE INDEX capture_session_of_user ON schedule_ingest.capture_session (user_id, created_at, id);

-- The picture itself is an artifact; what it is, as it was when it was taken in.
CREATE TABLE schedule_ingest.capture_image (
    id                  uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    session_id          uuid        NOT NULL REFERENCES schedule_ingest.capture_session ON DELETE RESTRICT,
    sequence            integer     NOT NULL,
    r2_key              text        NOT NULL,
    telegram_message_id bigint,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    sha256              text,
    size_bytes          bigint,
    image_no            bigint      GENERATED ALWAYS AS IDENTITY,
    CONSTRAINT capture_image_sequence CHECK (sequence > 0),
    CONSTRAINT capture_image_key CHECK (r2_key <> ''),
    CONSTRAINT capture_image_sha256 CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    CONSTRAINT capture_image_size CHECK (size_bytes > 0),
    CONSTRAINT capture_image_key_once UNIQUE (r2_key),
    CONSTRAINT capture_image_order UNIQUE (session_id, sequence)
);
CREATE UNIQUE INDEX capture_image_number ON schedule_ingest.capture_image (image_no);

CREATE TABLE schedule_ingest.day_schedule (
    user_id         bigint  NOT NULL,
    schedule_date   date    NOT NULL,
    current_version integer NOT NULL,
    PRIMARY KEY (user_id, schedule_date),
    CONSTRAINT day_schedule_version CHECK (current_version > 0)
);

CREATE TABLE schedule_ingest.schedule_version (
    user_id       bigint      NOT NULL,
    schedule_date date        NOT NULL,
    version       integer     NOT NULL,
    session_id    uuid        NOT NULL UNIQUE REFERENCES schedule_ingest.capture_session ON DELETE RESTRICT,
    payload       jsonb       NOT NULL,
    payload_hash  text        NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (user_id, schedule_date, version),
    CONSTRAINT schedule_version_number CHECK (version > 0),
    CONSTRAINT schedule_version_payload CHECK (jsonb_typeof(payload) = 'object'),
    CONSTRAINT schedule_version_hash CHECK (btrim(payload_hash) <> '')
);

INSERT INTO supervisor.setting (name, value, least, most) VALUES
    -- a lease younger than this is nobody else's; a worker asks for those that are 300 s old
    ('capture_lease_seconds', '300', 1, 300),
    -- one version a session, also when nothing has changed
    ('capture_skip_unchanged', 'false', NULL, NULL),
    ('capture_max_images', '20', 1, 20),
    ('capture_max_bytes', '10485760', 1, 33554432);
