-- name: plan_creation
-- template0: no session can hold it, so creating never fails because somebody looks at template1
SELECT format('create database %s', $1::text) AS what,
       format('CREATE DATABASE %I OWNER %I TEMPLATE template0 ENCODING ''UTF8''', $1::text, session_user) AS statement,
       true AS able
 WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = $1::text);

-- name: plan_database
-- only the roles named here get in, and nobody but the owner makes objects
WITH me AS (
    SELECT oid, rolname, rolsuper FROM pg_catalog.pg_roles WHERE rolname = session_user
), db AS (
    SELECT oid, datname, datdba, coalesce(datacl, acldefault('d', datdba)) AS acl
      FROM pg_catalog.pg_database WHERE datname = current_database()
), space AS (
    SELECT oid, coalesce(nspacl, acldefault('n', nspowner)) AS acl FROM pg_catalog.pg_namespace WHERE nspname = 'public'
), wanted (name, privilege) AS (
    SELECT unnest($1::text[]), 'CONNECT'
    UNION ALL VALUES ('tenure_owner', 'CONNECT'), ('tenure_owner', 'CREATE')
    UNION ALL SELECT me.rolname, 'CONNECT' FROM me, db WHERE NOT me.rolsuper AND NOT pg_has_role(me.oid, db.datdba, 'USAGE')
), upkeep (name, function) AS (
    -- a checkpoint's figures, and the segment after it
    VALUES ('pg_control_checkpoint()', 'pg_catalog.pg_control_checkpoint()'::regprocedure),
           ('pg_switch_wal()', 'pg_catalog.pg_switch_wal()'::regprocedure)
), plan (step, what, statement, able) AS (
    -- The grants come first: at no moment is a role that belongs here locked out.
    SELECT 1, format('grant %s on the database', lower(wanted.privilege)),
           format('GRANT %s ON DATABASE %I TO ', wanted.privilege, db.datname)
           || string_agg(quote_ident(wanted.name), ', ' ORDER BY wanted.name), true
      FROM wanted CROSS JOIN db LEFT JOIN pg_catalog.pg_roles AS r ON r.rolname = wanted.name
     WHERE NOT EXISTS (SELECT FROM aclexplode(db.acl) AS a
                        WHERE a.grantee = r.oid AND a.privilege_type = wanted.privilege)
     GROUP BY wanted.privilege, db.datname
    UNION ALL
    SELECT 2, 'revoke the database from public', format('REVOKE ALL ON DATABASE %I FROM PUBLIC', db.datname), true
      FROM db WHERE EXISTS (SELECT FROM aclexplode(db.acl) AS a WHERE a.grantee = 0)
    UNION ALL
    SELECT 3, 'grant the schema public to tenure_owner', 'GRANT USAGE, CREATE ON SCHEMA public TO tenure_owner', true
      FROM space
     WHERE NOT EXISTS (SELECT FROM aclexplode(space.acl) AS a JOIN pg_catalog.pg_roles AS r ON r.oid = a.grantee
                        WHERE r.rolname = 'tenure_owner' AND a.privilege_type = 'CREATE')
    UNION ALL
    SELECT 4, 'revoke create on the schema public from public', 'REVOKE CREATE ON SCHEMA public FROM PUBLIC', true
      FROM space WHERE EXISTS (SELECT FROM aclexplode(space.acl) AS a WHERE a.grantee = 0 AND a.privilege_type = 'CREATE')
    UNION ALL
    SELECT 5, format('grant %s to tenure_maintenance', upkeep.name),
           format('GRANT EXECUTE ON FUNCTION pg_catalog.%s TO tenure_maintenance', upkeep.name),
           me.rolsuper OR has_function_privilege(me.oid, upkeep.function, 'EXECUTE WITH GRANT OPTION')
      FROM me CROSS JOIN upkeep LEFT JOIN pg_catalog.pg_roles AS r ON r.rolname = 'tenure_maintenance'
     WHERE NOT coalesce(has_function_privilege(r.oid, upkeep.function, 'EXECUTE'), false)
)
SELECT what, statement, able FROM plan ORDER BY step, statement;
