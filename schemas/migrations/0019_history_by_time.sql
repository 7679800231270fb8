-- What moved when: the live stream and the list of orphans read the history by time.
CREATE INDEX job_run_history_at ON supervisor.job_run_history (at);
