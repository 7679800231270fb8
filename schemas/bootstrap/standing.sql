-- name: read_standing
-- what this connection may do, so that a refusal comes before the first change
SELECT r.rolname AS name,
       current_database() AS database,
       r.rolsuper OR r.rolcreatedb AS may_create_database,
       coalesce((SELECT CASE WHEN current_setting('server_version_num')::int >= 160000
                             THEN pg_has_role(r.oid, o.oid, 'SET')
                             ELSE pg_has_role(r.oid, o.oid, 'MEMBER') END
                   FROM pg_catalog.pg_roles AS o WHERE o.rolname = 'tenure_owner'), false) AS may_own,
       coalesce((SELECT pg_has_role(r.oid, d.datdba, 'USAGE')
                   FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()), false) AS owns_database,
       EXISTS (SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
                WHERE n.nspname = 'supervisor' AND c.relname = 'schema_migration') AS has_ledger
  FROM pg_catalog.pg_roles AS r
 WHERE r.rolname = session_user;

-- name: list_identities
-- what the schema identity is called here, by a table that no other has: no row before it was made
SELECT n.nspname AS name
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_roles AS r ON r.oid = c.relowner AND r.rolname = 'tenure_owner'
 WHERE c.relname = 'role_profiles' AND c.relkind = 'r' AND (n.nspname = 'identity' OR n.nspname LIKE '%\_identity')
 ORDER BY n.nspname;

-- name: list_logins
-- only a role that can log in is worth the question whether its password is right
SELECT rolname AS name FROM pg_catalog.pg_roles WHERE rolcanlogin AND rolname = ANY ($1::text[]);

-- name: become_owner
-- everything in the schemas belongs to the one role that nobody can log in as; over at the end of the transaction
SET LOCAL ROLE tenure_owner;

-- name: take_turn
-- one migrator at a time in this database; bounded by lock_timeout like every other lock ('tenure' in ASCII)
SELECT pg_catalog.pg_advisory_xact_lock(127978993709669);
