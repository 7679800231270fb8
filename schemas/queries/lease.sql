-- name: read_rights
-- what a role may really do with a table, also through memberships; compared with the contracts
SELECT a.attname AS column_name,
       has_column_privilege($1::text, a.attrelid, a.attnum, 'UPDATE') AS may_update,
       has_table_privilege($1::text, a.attrelid, 'INSERT') AS may_insert,
       has_table_privilege($1::text, a.attrelid, 'DELETE') AS may_delete,
       has_table_privilege($1::text, a.attrelid, 'TRUNCATE') AS may_truncate,
       has_table_privilege($1::text, a.attrelid, 'SELECT') AS may_select
  FROM pg_catalog.pg_attribute AS a
 WHERE a.attrelid = to_regclass($2::text) AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum;
