-- A worker reads all of it and writes its claim (columns by the lease contract) and the version that ends it; the day's pointer
-- is the trigger's alone.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA schedule_ingest FROM PUBLIC, tenure_control, tenure_worker, tenure_maintenance, tenure_console, tenure_client;
REVOKE ALL ON schedule_ingest.capture_image, schedule_ingest.day_schedule, schedule_ingest.schedule_version
    FROM PUBLIC, tenure_control, tenure_worker, tenure_maintenance, tenure_console, tenure_client;
GRANT USAGE ON SCHEMA schedule_ingest TO tenure_control, tenure_worker, tenure_console;
GRANT SELECT ON schedule_ingest.capture_image, schedule_ingest.day_schedule, schedule_ingest.schedule_version
    TO tenure_control, tenure_worker, tenure_console;
GRANT SELECT ON schedule_ingest.capture_session TO tenure_control, tenure_worker;
-- what an earlier release gave to reports had the claim in it
REVOKE SELECT ON schedule_ingest.capture_session FROM tenure_console;
GRANT SELECT (id, user_id, state, created_at, error, locked_at, locked_by) ON schedule_ingest.capture_session TO tenure_console;
GRANT INSERT (user_id, schedule_date, session_id, payload, payload_hash) ON schedule_ingest.schedule_version TO tenure_worker;
GRANT EXECUTE ON FUNCTION schedule_ingest.lease_timeout() TO tenure_control, tenure_worker;
GRANT EXECUTE ON FUNCTION schedule_ingest.give_back(uuid, uuid) TO tenure_worker;
GRANT EXECUTE ON FUNCTION
    schedule_ingest.submit(uuid, bigint, jsonb),
    schedule_ingest.submit(text, uuid, bigint, jsonb),
    schedule_ingest.refuse_session(text, uuid, text)
    TO tenure_control;
