-- What was lost can be told afterwards: until when a leader that ended without a word had renewed (written by who
-- took over), and the attempts whose worker was not heard in time.
ALTER TABLE supervisor.tenure_log ADD COLUMN before_renewed_at timestamptz;
CREATE INDEX job_run_lost ON supervisor.job_run (finished_at)
    WHERE error_code IN ('CONTINUATION_EXPIRED', 'CONTINUATION_LOST');
