-- A look at what was assigned can begin behind what it has seen already.
DROP INDEX supervisor.job_run_worker_state;
CREATE INDEX job_run_worker_state ON supervisor.job_run (assigned_worker_id, state, id)
    WHERE state IN ('ASSIGNED', 'RUNNING');

-- These are for questions about one job or one root. After a quiet hour the statistics call every index of live runs
-- empty, and the planner took any of them to find the runs of a worker, among those of all workers. With a condition
-- that only such a question fulfils they are not taken for others.
DROP INDEX supervisor.job_run_live_of_job;
CREATE INDEX job_run_live_of_job ON supervisor.job_run (job_definition_id)
    WHERE state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED') AND job_definition_id IS NOT NULL;
DROP INDEX supervisor.job_run_one_live;
CREATE UNIQUE INDEX job_run_one_live ON supervisor.job_run (root_id)
    WHERE state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED') AND root_id IS NOT NULL;
