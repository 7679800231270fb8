-- How long things are kept, and how those whose time is over are found without reading the others.

-- the first line of every log that is still here, oldest first
CREATE INDEX job_run_log_first ON supervisor.job_run_log (at, run_id) WHERE seq = 0;
-- one row a finished root: its newest, when nothing more is owed
CREATE INDEX job_run_ended ON supervisor.job_run (finished_at)
    WHERE state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED') AND next_attempt_id IS NULL AND retry_at IS NULL;
CREATE INDEX late_finish_at ON supervisor.late_finish (at);
CREATE INDEX skipped_fire_at ON supervisor.skipped_fire (at);

-- Artifacts that nothing refers to any more: written with the deletion of what did, removed when the artifact is gone.
CREATE TABLE supervisor.discarded_artifact (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uri           text        NOT NULL,
    discarded_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- by the beginning of the address: each store finds its own
CREATE INDEX discarded_artifact_uri ON supervisor.discarded_artifact (uri text_pattern_ops);

INSERT INTO supervisor.setting (name, value, least, most) VALUES
    ('run_retention_days', '30', 0.01, 36500),
    ('event_retention_days', '30', 0.01, 36500),
    ('skipped_retention_days', '90', 0.01, 36500),
    ('audit_retention_days', '365', 1, 36500),
    ('worker_retention_days', '1', 0.01, 36500);
