-- name: acquire_tenure
-- A candidate asks for leadership; no row = somebody leads, or was quicker. failed_over: lately, by the clock that may have stepped since.
SELECT a.epoch, a.system_identifier, a.timeline, a.quarantine_seconds,
    EXISTS (SELECT FROM supervisor.leader_epoch e WHERE e.quarantine_until > clock_timestamp() - interval '1 day') AS failed_over
FROM supervisor.acquire($1::text, $2::float8, $3::float8, $4::bigint, $5::bigint, $6::integer) a

-- name: renew_tenure
-- No row = the tenure is lost.
SELECT resign_requested FROM supervisor.renew($1::bigint, $2::text, $3::float8)

-- name: resign_tenure
-- Ends the lease so that the next leader need not wait for it.
SELECT supervisor.resign($1::bigint, $2::text, $3::text) AS resigned

-- name: read_workers
-- Whom the leader watches and gives work to.
SELECT worker_id, state, domains, slots, beat_seq, stop_bound_seconds, silent_seconds, running, held_by,
    counted_at
FROM supervisor.read_workers()

-- name: read_ended
-- How many runs of each worker and domain have ended since its claims were counted.
SELECT worker_id, domain, ended FROM supervisor.read_ended($1::timestamptz)

-- name: read_due
-- What could be assigned now, in claim order, by domain behind a run that was seen already.
SELECT id, version, domain, job_definition_id, room
FROM supervisor.read_due($1::text[], $2::integer[], $3::text[], $4::bigint[], $5::float8, $6::bigint[])

-- name: read_attention
-- Live runs that ask for a decision other than an assignment.
SELECT why, id, version, state, worker_id, seconds FROM supervisor.read_attention($1::float8)

-- name: assign_runs
-- The leader's batch of assignments; rows that no longer qualify are left out of the answer.
SELECT id, worker_id, attempt, queued_seconds
FROM supervisor.assign($1::bigint, $2::bigint[], $3::integer[], $4::text[], $5::text[], $6::bigint[], $7::float8)

-- name: orphan_runs
-- Assigned, never started, and the worker is lost.
SELECT id FROM supervisor.orphan($1::bigint, $2::bigint[], $3::integer[], $4::text[], $5::bigint[], $6::float8)

-- name: confirm_runs
-- Silent workers' runs are asked about before anything is done to them.
SELECT id, worker_id, deadline_at
FROM supervisor.confirm($1::bigint, $2::text[], $3::bigint[], $4::float8, $5::float8, $6::float8)

-- name: expire_runs
-- Not confirmed in time.
SELECT id, state FROM supervisor.expire($1::bigint, $2::bigint[], $3::integer[], $4::bigint[])

-- name: time_out_runs
-- Over their own time, and not ended by their worker.
SELECT id FROM supervisor.time_out($1::bigint, $2::bigint[], $3::integer[], $4::float8)

-- name: cancel_runs
-- What an operator asked to cancel.
SELECT id FROM supervisor.cancel($1::bigint, $2::text, $3::bigint[], $4::integer[], $5::float8)

-- name: exhaust_runs
-- Assigned again and again without a start.
SELECT id FROM supervisor.exhaust($1::bigint, $2::text, $3::bigint[], $4::integer[])

-- name: make_next_attempts
-- The rows of attempts that are owed.
SELECT id, retry_of_id FROM supervisor.next_attempts($1::bigint, $2::integer)

-- name: make_partitions
-- Partitions of the history for the coming months.
SELECT supervisor.make_partitions($1::integer) AS made

-- name: read_schedules
-- Schedules that want a look now.
SELECT id, cron, timezone, missed, missed_limit, fired_until, at FROM supervisor.read_schedules($1::integer)

-- name: fire_schedules
-- The instants of many schedules, and their watermarks, in one call.
SELECT id, job_definition_id, scheduled_for
FROM supervisor.fire($1::bigint, $2::bigint[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[],
    $7::timestamptz[], $8::text[], $9::bigint[], $10::timestamptz[], $11::bigint[], $12::timestamptz[],
    $13::timestamptz[], $14::integer[])

-- name: process_events
-- Runs out of events.
SELECT id, runs FROM supervisor.process_events($1::bigint, $2::integer)

-- name: read_server
-- Which server this is, for whoever has seen another since.
SELECT system_identifier, timeline FROM supervisor.server_identity()
