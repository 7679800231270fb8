-- Templates: supervisor/lease_sql.py fills in what stands in braces from a contract. Times are now(): each of these is
-- one statement in autocommit, so that is its beginning, the same for every row. Rows are locked in the order of their key where a
-- statement waits, and skipped where it may.

-- name: claim_rows
-- $1 owner, $2 how many at most, $3 the domain, which may be paused; stale rows first, and always one row out, so that what was recovered is told
WITH wanted AS MATERIALIZED (
    SELECT CASE WHEN EXISTS (SELECT FROM supervisor.domain_pause AS p WHERE p.domain = $3::text) THEN 0 ELSE $2::integer END AS n
), stale AS MATERIALIZED (
    SELECT {t_key} FROM {table} AS t
     WHERE ({only}) AND {is_stale} AND {recovered_by_claim}
     ORDER BY {t_key} LIMIT {recover_rows} FOR UPDATE OF t SKIP LOCKED
), recovered AS (
    UPDATE {table} AS t SET {stale_writes}
     WHERE {in_stale} RETURNING 1
), fresh AS MATERIALIZED (
    SELECT {t_key} FROM {table} AS t
     WHERE ({only}) AND t.{state} IN ({claimable}) AND ({ready})
     ORDER BY {t_order} LIMIT (SELECT n FROM wanted) FOR UPDATE OF t SKIP LOCKED
), taken_over AS MATERIALIZED (
    SELECT {t_key} FROM {table} AS t
     WHERE ({only}) AND {is_stale} AND {taken_over_by_claim}
     ORDER BY {t_order} LIMIT greatest(0, (SELECT n FROM wanted) - (SELECT count(*) FROM fresh)) FOR UPDATE OF t SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT * FROM fresh UNION ALL SELECT * FROM taken_over
), claimed AS (
    UPDATE {table} AS t SET {claim_writes}
     WHERE {in_picked}
    RETURNING {claim_returns}
)
SELECT (SELECT count(*) FROM recovered)::integer AS recovered, {c_returns}
  FROM (VALUES (1)) AS one LEFT JOIN claimed AS c ON true
 ORDER BY {c_order};

-- name: extend_rows
-- the answer lists what is still owned; what was named and is not listed has to stop
WITH given AS MATERIALIZED (
    SELECT * FROM unnest({arrays}) AS g ({names})
), mine AS MATERIALIZED (
    SELECT g.* FROM given AS g JOIN {table} AS t ON {t_is_g}
     WHERE {by_index} AND t.{token} = g.tenure_token AND t.{owner} = $1::text
       AND t.{state} = {running} AND NOT {is_expired}
     ORDER BY {t_key} FOR UPDATE OF t
)
UPDATE {table} AS t SET {writes} FROM mine AS g
 WHERE {t_is_g} AND t.{token} = g.tenure_token
RETURNING g.tenure_token AS token;

-- name: finish_rows
-- an outcome is recorded once, for the claim that stands in the running row
WITH given AS MATERIALIZED (
    SELECT * FROM unnest({arrays}) AS g ({names})
), mine AS MATERIALIZED (
    SELECT g.*, t.{state} = {running} AS tenure_open FROM given AS g JOIN {table} AS t ON {t_is_g}
     WHERE {by_index} AND t.{token} = g.tenure_token AND (t.{state} <> {running} OR t.{owner} = $1::text)
     ORDER BY {t_key} FOR UPDATE OF t
), recorded AS (
    UPDATE {table} AS t SET {writes} FROM mine AS g
     WHERE g.tenure_open AND {t_is_g} AND t.{token} = g.tenure_token
    RETURNING g.*
){also}
SELECT g.tenure_token AS token, CASE WHEN r.tenure_token IS NOT NULL THEN 'RECORDED' WHEN m.tenure_token IS NOT NULL THEN 'ALREADY'
                     ELSE 'SUPERSEDED' END AS answer
  FROM given AS g LEFT JOIN mine AS m ON m.tenure_token = g.tenure_token LEFT JOIN recorded AS r ON r.tenure_token = g.tenure_token;

-- name: release_rows
-- given back as if it had not been claimed, by its owner
WITH given AS MATERIALIZED (
    SELECT * FROM unnest({arrays}) AS g ({names})
), mine AS MATERIALIZED (
    SELECT g.* FROM given AS g JOIN {table} AS t ON {t_is_g}
     WHERE {by_index} AND t.{token} = g.tenure_token AND t.{owner} = $1::text AND t.{state} = {running}
     ORDER BY {t_key} FOR UPDATE OF t
)
UPDATE {table} AS t SET {writes} FROM mine AS g
 WHERE {t_is_g} AND t.{token} = g.tenure_token
RETURNING g.tenure_token AS token;

-- name: release_unheld
-- $1 owner, $2 the tokens it holds: after a claim whose answer was lost, what it took is nobody's work
WITH unheld AS MATERIALIZED (
    SELECT {t_key} FROM {table} AS t
     WHERE ({only}) AND t.{state} = {running} AND t.{owner} = $1::text AND t.{token} <> ALL ($2::uuid[])
     ORDER BY {t_key} FOR UPDATE OF t SKIP LOCKED
)
UPDATE {table} AS t SET {writes}
     WHERE {in_unheld} RETURNING {t_key};

-- name: recover_rows
-- $1 how many at most; the control plane's way to the same end as the claim's
WITH stale AS MATERIALIZED (
    SELECT {t_key} FROM {table} AS t
     WHERE ({only}) AND {is_stale} AND {recovered_by_control}
     ORDER BY {t_key} LIMIT $1::integer FOR UPDATE OF t SKIP LOCKED
)
UPDATE {table} AS t SET {stale_writes}
     WHERE {in_stale} RETURNING {t_key};

-- name: recover_rows_by
-- $2 who asks: as recover_rows, and one row of the audit for each row
WITH recovered AS (
{recover}
)
SELECT {r_key}, supervisor.note_recovery($2::text, '{table}', concat_ws(',', {r_key})) FROM recovered AS r;

-- name: count_rows
-- what is held, and what was held and has run out; nothing but running rows is read
SELECT count(*) FILTER (WHERE NOT {is_stale}) AS held, count(*) FILTER (WHERE {is_stale}) AS expired
  FROM {table} AS t WHERE ({only}) AND t.{state} = {running};

-- name: match_key
-- a selection by a key of one column: the index is taken whatever the planner believes about the table
t.{lead} = ANY (ARRAY(SELECT x.{lead} FROM {relation} AS x));

-- name: match_keys
-- a selection by a key of several columns
({t_key}) IN (SELECT {x_key} FROM {relation} AS x);

-- name: grant_rows
-- column by column, after a clean slate: the whitelist is what the database permits
GRANT USAGE ON SCHEMA {schema} TO tenure_worker, tenure_control;
REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {table} FROM tenure_worker;
GRANT {rights} ON {table} TO tenure_worker;
GRANT UPDATE ({writable}) ON {table} TO tenure_worker;
GRANT SELECT ON {table} TO tenure_control;
GRANT UPDATE ({recovery}) ON {table} TO tenure_control;
