-- name: plan_ledger
-- where the schema writes down what was applied; written by the owner alone
WITH owner AS (
    SELECT oid FROM pg_catalog.pg_roles WHERE rolname = 'tenure_owner'
), space AS (
    SELECT oid, nspacl FROM pg_catalog.pg_namespace WHERE nspname = 'supervisor'
), ledger (name, columns) AS (VALUES
    ('schema_migration', $$namespace text NOT NULL DEFAULT 'tenure', number integer NOT NULL CHECK (number > 0),
        name text NOT NULL, sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (namespace, number)$$),
    ('schema_functions', $$namespace text PRIMARY KEY DEFAULT 'tenure', number integer NOT NULL,
        sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp()$$)
), plan (step, what, statement) AS (
    SELECT 1, 'revoke execute on later functions from public',
           'ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC'
     WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_default_acl AS a, owner
                        WHERE a.defaclrole = owner.oid AND a.defaclnamespace = 0 AND a.defaclobjtype = 'f')
    UNION ALL
    SELECT 2, 'create schema supervisor', 'CREATE SCHEMA supervisor' WHERE NOT EXISTS (SELECT FROM space)
    UNION ALL
    SELECT 3, format('create table supervisor.%s', ledger.name),
           format('CREATE TABLE supervisor.%I (%s)', ledger.name, ledger.columns)
      FROM ledger
     WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c, space
                        WHERE c.relnamespace = space.oid AND c.relname = ledger.name)
    UNION ALL
    SELECT 4, 'grant the schema supervisor to the runtime roles',
           'GRANT USAGE ON SCHEMA supervisor TO ' || string_agg(quote_ident(r.name), ', ' ORDER BY r.name)
      FROM unnest($1::text[]) AS r (name)
     WHERE NOT EXISTS (SELECT FROM space, aclexplode(space.nspacl) AS a JOIN pg_catalog.pg_roles AS p ON p.oid = a.grantee
                        WHERE p.rolname = r.name AND a.privilege_type = 'USAGE')
    HAVING count(*) > 0
)
SELECT what, statement, true AS able FROM plan ORDER BY step, statement;

-- name: read_applied
-- compared with the files before anything is applied
SELECT number, name, sha256 FROM supervisor.schema_migration WHERE namespace = $1::text ORDER BY number;

-- name: read_namespaces
-- how far each of them came, ours and those of packages
SELECT namespace, max(number) AS number FROM supervisor.schema_migration GROUP BY namespace ORDER BY namespace;

-- name: record_migration
-- in the migration's own transaction, so that both are there or neither is
INSERT INTO supervisor.schema_migration (namespace, number, name, sha256)
VALUES ($1::text, $2::integer, $3::text, $4::text);

-- name: read_functions
-- no row: the functions were never applied
SELECT number, sha256 FROM supervisor.schema_functions WHERE namespace = 'tenure';

-- name: record_functions
-- the migration number belongs to it: a migration may have dropped a function that has to come back
INSERT INTO supervisor.schema_functions (number, sha256) VALUES ($1::integer, $2::text)
ON CONFLICT (namespace) DO UPDATE
   SET number = excluded.number, sha256 = excluded.sha256, applied_at = excluded.applied_at;

-- name: list_present
-- the leased tables that are there: those of a package that is new come with its migrations
SELECT t.name FROM unnest($1::text[]) AS t (name) WHERE to_regclass(t.name) IS NOT NULL;

-- name: open_ledger
-- after the functions, whose grants begin with a clean slate: a replica asks at start whether the schema fits
GRANT SELECT ON supervisor.schema_migration, supervisor.schema_functions TO tenure_control, tenure_worker, tenure_console;

-- name: defer_bodies
-- functions call each other over files, so their bodies are checked when all of them are there
SET LOCAL check_function_bodies = off;

-- name: check_bodies
-- the other half of defer_bodies
SET LOCAL check_function_bodies = on;

-- name: validate_functions
-- what CREATE FUNCTION would have said about each body
SELECT CASE l.lanname WHEN 'plpgsql' THEN plpgsql_validator(p.oid) ELSE fmgr_sql_validator(p.oid) END
  FROM pg_catalog.pg_proc AS p
  JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
 WHERE l.lanname IN ('plpgsql', 'sql') AND p.proowner = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = 'tenure_owner');

-- name: declare_task_types
-- what the installed code says of the arguments that runs take
SELECT supervisor.declare_task_types($1::text::jsonb);

-- name: find_partition_maker
-- nothing to call in a schema whose functions do not bring it
SELECT to_regprocedure('supervisor.make_partitions(integer)') IS NOT NULL;

-- name: make_partitions
-- the history of the coming months has its partitions before a leader's daily duty ever ran
SELECT supervisor.make_partitions(2);
