-- name: create_token
-- The id that goes into the token, and its end.
SELECT id, expires_at FROM supervisor.create_token($1::text, $2::text, $3::text, $4::text, $5::double precision)

-- name: revoke_token
-- False when it was revoked already.
SELECT id, name, revoked FROM supervisor.revoke_token($1::text, $2::text)

-- name: list_tokens
-- All there are and were, without anything that could open a door.
SELECT id, name, role, created_by, created_at, expires_at, last_used_at, revoked_by, revoked_at, clock_timestamp() AS now
FROM supervisor.list_tokens()

-- name: find_token
-- Of one that can be used now: who it is, what its secret hashes to, and for how many seconds more.
SELECT name, role, hash, seconds FROM supervisor.find_token($1::bigint)

-- name: has_token
-- Could anybody come in at all?
SELECT supervisor.has_token() AS found

-- name: note_token_use
-- When it was last used, to a few minutes.
SELECT supervisor.note_token_use($1::bigint) AS noted

-- name: open_session
-- False when the token cannot be used any more.
SELECT supervisor.open_session($1::bytea, $2::bigint, $3::bytea, $4::text, $5::bytea) AS opened

-- name: use_session
-- Who a session is; being used, it lives on.
SELECT name, role, shared_proof, seconds FROM supervisor.use_session($1::bytea)

-- name: close_session
-- The way out.
SELECT supervisor.close_session($1::bytea) AS closed
