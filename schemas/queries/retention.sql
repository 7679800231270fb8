-- name: read_unarchived
-- Logs whose time in the database is over, from a place on.
SELECT run_id, at, finished_at FROM supervisor.read_unarchived($1::timestamptz, $2::bigint, $3::integer)

-- name: read_log_lines
-- A page of a log, after a line.
SELECT l.seq, l.stream, l.at, l.body FROM supervisor.job_run_log l
WHERE l.run_id = $1::bigint AND l.seq > $2::integer ORDER BY l.seq LIMIT $3::integer

-- name: read_log_ref
-- Where the log of a run is; no row = no such run, NULL = in the database.
SELECT r.log_ref FROM supervisor.job_run r WHERE r.id = $1::bigint

-- name: archive_log
-- The reference comes and the bodies go, in one.
SELECT supervisor.archive_log($1::bigint, $2::bigint, $3::text, $4::bigint, $5::bigint) AS answer

-- name: prune_step
-- What is over goes, a bounded number of each.
SELECT what, removed FROM supervisor.prune_step($1::bigint, $2::integer)

-- name: drop_partitions
-- Months of the history that are past and empty.
SELECT supervisor.drop_partitions($1::bigint) AS dropped

-- name: list_discarded
-- Artifacts of one store that nothing refers to any more, after a place in the list.
SELECT d.id, d.uri FROM supervisor.discarded_artifact d
WHERE EXISTS (SELECT FROM unnest($1::text[]) AS p (place) WHERE starts_with(d.uri, p.place)) AND d.id > $2::bigint
ORDER BY d.id LIMIT $3::integer

-- name: forget_discarded
-- The artifacts are gone.
SELECT supervisor.forget_discarded($1::bigint, $2::bigint[]) AS forgotten
