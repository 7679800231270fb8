-- A plan lists what is missing, in order: `what` for people (no secrets), `statement` to run, `able` = false where this
-- connection cannot do it and the rest works without. The same rows are carried out, or printed for an administrator.
-- Logins are [{"name", "groups", "verifier" or null, "refused"}].

-- name: plan_roles
-- roles belong to the cluster: what is there already, made by another database's migrate, is left as it is
WITH me AS (
    SELECT oid, rolname, rolsuper, rolcreaterole FROM pg_catalog.pg_roles WHERE rolname = session_user
), own (name) AS (
    SELECT 'tenure_owner' UNION ALL SELECT unnest($1::text[])
), login AS (
    SELECT l.name, l.groups, l.verifier, l.refused, r.oid, r.rolcanlogin, coalesce(r.rolsuper, false) AS rolsuper,
           l.name IN (SELECT own.name FROM own) AS is_group
      FROM jsonb_to_recordset($2::jsonb) AS l (name text, groups text[], verifier text, refused boolean)
      LEFT JOIN pg_catalog.pg_roles AS r ON r.rolname = l.name
), wanted AS (
    SELECT login.name AS member, login.oid AS member_oid, g.name AS role, r.oid AS role_oid
      FROM login CROSS JOIN unnest(login.groups) AS g (name) LEFT JOIN pg_catalog.pg_roles AS r ON r.rolname = g.name
     WHERE login.name <> g.name AND NOT login.rolsuper
    UNION ALL
    SELECT me.rolname, me.oid, 'tenure_owner', (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = 'tenure_owner')
      FROM me WHERE NOT me.rolsuper
), plan (step, what, statement, able) AS (
    SELECT 1, format('create role %s', own.name), format('CREATE ROLE %I NOLOGIN', own.name), true
      FROM own WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = own.name)
    UNION ALL
    SELECT 2, format('create role %s with login', name),
           format('CREATE ROLE %I LOGIN', name) || coalesce(format(' PASSWORD %L', verifier), ''), true
      FROM login WHERE NOT is_group AND oid IS NULL
    UNION ALL
    SELECT 3, format('let role %s log in', name),
           format('ALTER ROLE %I LOGIN', name) || coalesce(format(' PASSWORD %L', verifier), ''), true
      FROM login WHERE is_group AND (refused OR NOT coalesce(rolcanlogin, false))
    UNION ALL
    SELECT 4, format('grant %s to %s', role, member),
           format('GRANT %I TO %I', role, member)
           || CASE WHEN current_setting('server_version_num')::int >= 160000 THEN ' WITH INHERIT TRUE, SET TRUE' ELSE '' END,
           true
      FROM wanted
     WHERE NOT coalesce(CASE WHEN current_setting('server_version_num')::int >= 160000
                             THEN pg_has_role(member_oid, role_oid, 'USAGE') AND pg_has_role(member_oid, role_oid, 'SET')
                             ELSE pg_has_role(member_oid, role_oid, 'MEMBER') END, false)
    UNION ALL
    SELECT 5, 'grant pg_checkpoint to tenure_maintenance', 'GRANT pg_checkpoint TO tenure_maintenance',
           me.rolsuper OR pg_has_role(me.oid, 'pg_checkpoint', 'MEMBER WITH ADMIN OPTION')
           OR (me.rolcreaterole AND current_setting('server_version_num')::int < 160000)
      FROM me
     WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_auth_members AS m
                        WHERE m.roleid = 'pg_checkpoint'::regrole
                          AND m.member = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = 'tenure_maintenance'))
)
SELECT what, statement, able FROM plan ORDER BY step, statement;

-- name: plan_settings
-- a session of ours never waits long nor sits in a transaction; for this database only, because roles are the cluster's
WITH login AS (
    SELECT l.name, r.oid, NOT l.groups <@ ARRAY['tenure_maintenance'] AS short_statements
      FROM jsonb_to_recordset($2::jsonb) AS l (name text, groups text[])
      LEFT JOIN pg_catalog.pg_roles AS r ON r.rolname = l.name
     WHERE NOT coalesce(r.rolsuper, false) AND l.name <> session_user
), wanted (name, oid, setting, value) AS (
    SELECT login.name, login.oid, s.setting, s.value
      FROM login
     CROSS JOIN LATERAL (VALUES
           -- VACUUM and CHECKPOINT take as long as the data is large
           ('statement_timeout', CASE WHEN login.short_statements THEN '5s' ELSE '0' END),
           ('lock_timeout', '2s'),
           ('idle_in_transaction_session_timeout', '5s'),
           ('synchronous_commit', 'on'),
           ('search_path', 'pg_catalog')) AS s (setting, value)
)
SELECT format('set the session limits of %s', name) AS what,
       format('ALTER ROLE %I IN DATABASE %I SET %I = %L', name, $1::text, setting, value) AS statement,
       true AS able
  FROM wanted
 WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_db_role_setting AS s
                     JOIN pg_catalog.pg_database AS d ON d.oid = s.setdatabase AND d.datname = $1::text
                    WHERE s.setrole = wanted.oid AND setting || '=' || value = ANY (s.setconfig))
 ORDER BY name, setting;
