-- What reports read, as tenure_console: no payload, no result, no claim and no secret of a worker.

CREATE OR REPLACE VIEW supervisor.run_report AS
    SELECT r.id, r.root_id, d.name AS job, r.domain, r.action, r.state, r.continuation_state, r.attempt, r.starts, r.max_attempts,
        r.priority, r.scheduled_for, r.not_before, r.created_at, r.assigned_at, r.started_at, r.finished_at, r.retry_at,
        r.assigned_worker_id, r.leader_epoch, r.cancel_requested_at, r.error_code, r.error_message
    FROM supervisor.job_run r JOIN supervisor.job_definition d ON d.id = r.job_definition_id;

CREATE OR REPLACE VIEW supervisor.job_report AS
    SELECT d.id, d.name, d.domain, d.action, d.enabled, d.cron, d.timezone, d.missed, d.event_type, d.priority, d.max_attempts,
        d.timeout_seconds, d.concurrency, d.concurrency_policy, d.next_fire_at, d.created_at, d.updated_at, d.removed_at
    FROM supervisor.job_definition d;

CREATE OR REPLACE VIEW supervisor.worker_report AS
    SELECT w.worker_id, w.state, w.domains, w.slots, w.heartbeat_at, w.drain_requested_at, w.first_seen_at
    FROM supervisor.worker w;
