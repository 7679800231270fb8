-- Only runs of a schedule have an instant. The others had an entry each here, all alike, at every move.
DROP INDEX supervisor.job_run_slot;
CREATE UNIQUE INDEX job_run_slot ON supervisor.job_run (job_definition_id, scheduled_for) WHERE scheduled_for IS NOT NULL;
DROP INDEX supervisor.job_run_state_scheduled;
CREATE INDEX job_run_state_scheduled ON supervisor.job_run (state, scheduled_for)
    WHERE state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED') AND scheduled_for IS NOT NULL;
