-- After the clean slate of 90_grants.sql.
GRANT EXECUTE ON FUNCTION supervisor.apply_jobs(text, jsonb, boolean, jsonb) TO tenure_control;
