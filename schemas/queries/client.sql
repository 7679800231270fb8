-- name: emit_event
-- An event, once for each dedupe key.
SELECT id, created FROM supervisor.emit($1::text, $2::text::jsonb, $3::text)

-- name: read_outcome
-- How far a run has come, by its newest attempt.
SELECT id, root_id, attempt, state, owed, result, error_code, error_message FROM supervisor.run_outcome($1::bigint)
