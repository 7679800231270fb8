-- name: insert_schedule_version
-- what ends a session writes its version, unless it says what the day says already and that is to be skipped; the trigger gives the number
INSERT INTO schedule_ingest.schedule_version (user_id, schedule_date, session_id, payload, payload_hash)
    SELECT s.user_id, r.schedule_date, r.id, r.payload, r.payload_hash
      FROM recorded AS r JOIN schedule_ingest.capture_session AS s ON s.id = r.id
     WHERE NOT (r.skip_unchanged AND EXISTS
           (SELECT FROM schedule_ingest.day_schedule AS d JOIN schedule_ingest.schedule_version AS v
                ON (v.user_id, v.schedule_date, v.version) = (d.user_id, d.schedule_date, d.current_version)
             WHERE (d.user_id, d.schedule_date) = (s.user_id, r.schedule_date) AND v.payload_hash = r.payload_hash))
