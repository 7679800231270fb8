-- At most one scan or hash is waiting or running. Where an older make left several, one stays: a running one before a
-- waiting one, then the oldest, then by id; the others can be tried again.
WITH active AS (
    SELECT j.id, j.status,
           row_number() OVER (ORDER BY (j.status = 'running') DESC, j.created_at, j.id) AS place
      FROM dedup.jobs AS j
     WHERE j.status IN ('pending', 'running') AND j.kind IN ('scan', 'hash')
)
UPDATE dedup.jobs AS j
   SET status = 'retryable', retry_after = clock_timestamp(), updated_at = clock_timestamp(),
       worker_id = NULL, worker_heartbeat_at = NULL, lease_expires_at = NULL, claim_id = NULL,
       error_code = CASE WHEN a.status = 'running' THEN 'MIGRATION_MUTEX_RECOVERY' ELSE 'MIGRATION_ACTIVE_RECOVERY' END,
       error_message = CASE WHEN a.status = 'running' THEN 'another scan or hash was running as well'
                            ELSE 'another scan or hash was active as well' END
  FROM active AS a
 WHERE a.id = j.id AND a.place > 1;

CREATE UNIQUE INDEX ix_jobs_single_active_scan_hash ON dedup.jobs ((1))
    WHERE lower(status) IN ('pending', 'running') AND lower(kind) IN ('scan', 'hash');

CREATE INDEX jobs_list ON dedup.jobs (created_at DESC, id DESC);
CREATE INDEX jobs_claim ON dedup.jobs (kind, created_at, id) WHERE status = 'pending';
CREATE INDEX jobs_running ON dedup.jobs (kind, id) WHERE status = 'running';
CREATE INDEX jobs_retryable ON dedup.jobs (retry_after) WHERE status = 'retryable';
CREATE UNIQUE INDEX jobs_of_run ON dedup.jobs (run_id, kind, coalesce(library_id, 0))
    WHERE run_id IS NOT NULL AND status NOT IN ('failed', 'cancelled');
CREATE INDEX jobs_library ON dedup.jobs (library_id);
CREATE INDEX job_moves_job ON dedup.job_moves (job_id, id);

CREATE INDEX thumbnails_claim ON dedup.thumbnails (id) WHERE status = 'pending';
CREATE INDEX thumbnails_running ON dedup.thumbnails (id) WHERE status = 'running';
CREATE INDEX thumbnails_retry ON dedup.thumbnails (retry_after) WHERE status = 'failed' AND error_count < 5;
CREATE INDEX thumbnails_group ON dedup.thumbnails (group_key);
CREATE INDEX thumbnails_active_group ON dedup.thumbnails (group_key) WHERE status IN ('pending', 'running');
CREATE INDEX thumbnails_file ON dedup.thumbnails (file_id);
CREATE INDEX cleanup_claim ON dedup.thumbnail_cleanup_jobs (execute_after, id) WHERE status = 'pending';
CREATE INDEX cleanup_running ON dedup.thumbnail_cleanup_jobs (id) WHERE status = 'running';
CREATE INDEX wal_claim ON dedup.wal_maintenance_jobs (execute_after, id) WHERE status IN ('pending', 'retryable');
CREATE INDEX wal_running ON dedup.wal_maintenance_jobs (id) WHERE status = 'running';

-- what is over, oldest first
CREATE INDEX jobs_ended ON dedup.jobs ((coalesce(finished_at, updated_at))) WHERE status IN ('completed', 'failed', 'cancelled');
CREATE INDEX cleanup_ended ON dedup.thumbnail_cleanup_jobs ((coalesce(finished_at, updated_at)))
    WHERE status IN ('completed', 'failed');
CREATE INDEX cleanup_removed_failed ON dedup.thumbnail_cleanup_jobs ((coalesce(finished_at, updated_at)))
    WHERE status = 'failed' AND group_key = 'removed';
CREATE INDEX wal_ended ON dedup.wal_maintenance_jobs ((coalesce(finished_at, updated_at))) WHERE status IN ('completed', 'failed');
