-- A look at what was assigned can begin behind what it has seen already.
DROP INDEX supervisor.job_run_worker_state;
CREATE INDEX job_run_worker_state ON supervisor.job_run (assigned_worker_id, state, id)
    WHERE state IN ('ASSIGNED', 'RUNNING');
