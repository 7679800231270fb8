-- The tables that are claimed from may be vacuumed by tenure_maintenance, which reads none of them. Before PostgreSQL 17 there
-- is no such right: only the owner vacuums there.
GRANT USAGE ON SCHEMA dedup TO tenure_maintenance;
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 170000 THEN
        EXECUTE 'GRANT MAINTAIN ON dedup.jobs, dedup.library_files, dedup.thumbnails, dedup.thumbnail_cleanup_jobs,
            dedup.wal_maintenance_jobs TO tenure_maintenance';
    END IF;
END $$;
