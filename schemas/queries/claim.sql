-- name: read_assigned
-- What the leader gave to this worker, behind a run that was seen already.
SELECT id, version, claim_id, domain FROM supervisor.assigned($1::text, $2::uuid, $3::bigint)

-- name: start_runs
-- Nothing is executed before this answered.
SELECT id, answer, root_id, domain, action, payload, attempt, leader_epoch, timeout_seconds
FROM supervisor.start($1::text, $2::uuid, $3::bigint, $4::bigint[], $5::integer[], $6::uuid[])

-- name: beat_worker
-- One contact for all that this worker holds.
SELECT listed, cancels, drain, leader_live, epoch, system_identifier, timeline, assigned
FROM supervisor.beat($1::text, $2::uuid, $3::bigint, $4::bigint, $5::uuid[], $6::text[], $7::integer, $8::float8,
    $9::boolean)

-- name: confirm_self
-- The worker sees no leader and says until when it goes on.
SELECT supervisor.confirm_self($1::text, $2::uuid[], $3::float8) AS confirming

-- name: finish_runs
-- Outcomes of a batch; repeated until answered.
SELECT id, answer, state
FROM supervisor.finish($1::text, $2::bigint[], $3::uuid[], $4::bigint[], $5::text[], $6::text[]::jsonb[], $7::text[],
    $8::text[], $9::float8[])

-- name: release_runs
-- Given back before the start.
SELECT supervisor.release($1::text, $2::bigint[], $3::uuid[]) AS released

-- name: leave_worker
-- The last call of a worker.
SELECT supervisor.leave($1::text, $2::uuid) AS released

-- name: append_log
-- Lines of an attempt's log; a repeated call adds nothing.
SELECT supervisor.append_log($1::text, $2::bigint, $3::uuid, $4::integer[], $5::text[], $6::text[]) AS added
