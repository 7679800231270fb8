-- Who may do what. Nobody but the owner writes a table; a runtime role moves runs through its functions only.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA supervisor FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA supervisor
    FROM tenure_control, tenure_worker, tenure_maintenance, tenure_console, tenure_client;
REVOKE ALL ON ALL TABLES IN SCHEMA supervisor
    FROM PUBLIC, tenure_control, tenure_worker, tenure_maintenance, tenure_console, tenure_client;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA supervisor
    FROM PUBLIC, tenure_control, tenure_worker, tenure_maintenance, tenure_console, tenure_client;

GRANT SELECT ON supervisor.leader_epoch, supervisor.leader_lease, supervisor.tenure_log, supervisor.job_definition, supervisor.job_run, supervisor.job_run_history, supervisor.job_run_log,
    supervisor.late_finish, supervisor.retry_request, supervisor.setting, supervisor.audit,
    supervisor.skipped_fire, supervisor.event, supervisor.domain_pause, supervisor.schema_migration, supervisor.task_type TO tenure_control;
-- all of a worker but its secret
GRANT SELECT (worker_id, state, domains, slots, heartbeat_at, beat_seq, beat_no, stop_bound_seconds, drain_requested_at,
    first_seen_at) ON supervisor.worker TO tenure_control;
GRANT SELECT ON supervisor.setting, supervisor.domain_pause, supervisor.schema_migration TO tenure_worker;
GRANT SELECT ON supervisor.schema_migration, supervisor.run_report, supervisor.job_report, supervisor.worker_report,
    supervisor.setting, supervisor.tenure_log, supervisor.skipped_fire, supervisor.domain_pause TO tenure_console;

GRANT EXECUTE ON FUNCTION
    supervisor.server_identity(),
    supervisor.acquire(text, double precision, double precision, bigint, bigint, integer),
    supervisor.renew(bigint, text, double precision),
    supervisor.resign(bigint, text, text),
    supervisor.fence(bigint),
    supervisor.assign(bigint, bigint[], integer[], text[], text[], bigint[], double precision),
    supervisor.orphan(bigint, bigint[], integer[], text[], bigint[], double precision),
    supervisor.confirm(bigint, text[], bigint[], double precision, double precision, double precision),
    supervisor.expire(bigint, bigint[], integer[], bigint[]),
    supervisor.time_out(bigint, bigint[], integer[], double precision),
    supervisor.cancel(bigint, text, bigint[], integer[], double precision),
    supervisor.exhaust(bigint, text, bigint[], integer[]),
    supervisor.next_attempts(bigint, integer),
    supervisor.make_partitions(integer),
    supervisor.read_schedules(integer),
    supervisor.fire(bigint, bigint[], text[], text[], timestamptz[], timestamptz[], timestamptz[], text[], bigint[],
        timestamptz[], bigint[], timestamptz[], timestamptz[], integer[]),
    supervisor.process_events(bigint, integer),
    supervisor.emit(text, jsonb, text),
    supervisor.run_outcome(bigint),
    supervisor.pause_domain(text, text, boolean),
    supervisor.read_workers(),
    supervisor.read_ended(timestamptz),
    supervisor.read_due(text[], integer[], text[], bigint[], double precision, bigint[]),
    supervisor.read_attention(double precision),
    supervisor.enqueue(text, jsonb, text, timestamptz, integer),
    supervisor.enqueue_many(text, jsonb[], text[], timestamptz, integer),
    supervisor.trigger_job(text, text, jsonb, text, timestamptz, integer),
    supervisor.trigger_jobs(text, text, jsonb[], text[], timestamptz, integer),
    supervisor.post_event(text, text, jsonb, text),
    supervisor.note_recovery(text, text, text),
    supervisor.request_cancel(text, bigint),
    supervisor.request_retry(text, bigint),
    supervisor.request_drain(text, text),
    supervisor.request_resign(text),
    supervisor.save_job(text, text, jsonb, boolean),
    supervisor.save_job(text, text, jsonb, boolean, boolean),
    supervisor.remove_job(text, text),
    supervisor.remove_job(text, text, boolean),
    supervisor.save_setting(text, text, jsonb)
    TO tenure_control;

GRANT EXECUTE ON FUNCTION
    supervisor.server_identity(),
    supervisor.assigned(text, uuid, bigint),
    supervisor.start(text, uuid, bigint, bigint[], integer[], uuid[]),
    supervisor.beat(text, uuid, bigint, bigint, uuid[], text[], integer, double precision, boolean),
    supervisor.confirm_self(text, uuid[], double precision),
    supervisor.finish(text, bigint[], uuid[], bigint[], text[], jsonb[], text[], text[], double precision[]),
    supervisor.release(text, bigint[], uuid[]),
    supervisor.leave(text, uuid),
    supervisor.append_log(text, bigint, uuid, integer[], text[], text[])
    TO tenure_worker;

GRANT EXECUTE ON FUNCTION
    supervisor.enqueue(text, jsonb, text, timestamptz, integer),
    supervisor.enqueue_many(text, jsonb[], text[], timestamptz, integer),
    supervisor.emit(text, jsonb, text),
    supervisor.run_outcome(bigint)
    TO tenure_client;
