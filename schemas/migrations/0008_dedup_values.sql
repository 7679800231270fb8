-- The rows of an older make come over, each value in the type of its new column, and columns that are not ours with them.
-- Then its values are put in order, before anything is built on them: lower case, and no file that claims a hash it does not
-- have. Every row stays; where there was no older make, nothing happens.
DO $$
DECLARE
    older record;
    extra record;
    into_ text;
    from_ text;
BEGIN
    SET LOCAL TimeZone = 'UTC';  -- a time without a zone was one of UTC
    FOR older IN
        SELECT c.oid::regclass AS place, n.oid::regclass AS ours, n.oid AS ours_id, c.oid AS id
          FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_class AS n ON n.relname = c.relname
         WHERE c.relnamespace = 'dedup_older'::regnamespace AND n.relnamespace = 'dedup'::regnamespace AND c.relkind IN ('r', 'p')
    LOOP
        FOR extra IN
            SELECT a.attname, format_type(a.atttypid, a.atttypmod) AS type FROM pg_catalog.pg_attribute AS a
             WHERE a.attrelid = older.id AND a.attnum > 0 AND NOT a.attisdropped
               AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS o WHERE o.attrelid = older.ours_id AND o.attname = a.attname)
        LOOP
            EXECUTE format('ALTER TABLE %s ADD COLUMN %I %s', older.ours, extra.attname, extra.type);
        END LOOP;

        SELECT string_agg(quote_ident(n.attname), ', ' ORDER BY n.attnum),
               string_agg(CASE WHEN n.attnotnull AND d.adbin IS NOT NULL
                    THEN format('coalesce(%s, %s)', v.given, pg_get_expr(d.adbin, d.adrelid)) ELSE v.given END, ', ' ORDER BY n.attnum)
          INTO into_, from_
          FROM pg_catalog.pg_attribute AS n
          JOIN pg_catalog.pg_attribute AS o ON o.attrelid = older.id AND o.attname = n.attname
          LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = n.attrelid AND d.adnum = n.attnum
         CROSS JOIN LATERAL (SELECT format(CASE
                    WHEN o.atttypid = n.atttypid THEN 'o.%1$I'
                    WHEN n.atttypid = 'text'::regtype THEN 'o.%1$I::text'
                    WHEN n.atttypid = 'bytea'::regtype THEN 'decode(o.%1$I::text, ''hex'')'
                    ELSE 'nullif(o.%1$I::text, '''')::%2$s' END, n.attname, format_type(n.atttypid, n.atttypmod)) AS given) AS v
         WHERE n.attrelid = older.ours_id AND n.attnum > 0 AND NOT n.attisdropped AND NOT o.attisdropped;
        EXECUTE format('INSERT INTO %s (%s) SELECT %s FROM %s AS o', older.ours, into_, from_, older.place);

        IF EXISTS (SELECT FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = older.ours_id AND a.attname = 'id' AND a.attidentity <> '') THEN
            EXECUTE format('SELECT setval(pg_get_serial_sequence(%1$L, ''id''), max(o.id)) FROM %1$s AS o HAVING max(o.id) > 0',
                older.ours);
        END IF;
        FOR extra IN SELECT f.conrelid::regclass AS place, f.conname FROM pg_catalog.pg_constraint AS f
                      WHERE f.confrelid = older.id AND f.contype = 'f' LOOP
            EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', extra.place, extra.conname);
        END LOOP;
        EXECUTE format('DROP TABLE %s', older.place);
    END LOOP;
END $$;
DROP SCHEMA dedup_older;

UPDATE dedup.jobs SET kind = lower(kind), status = lower(status)
 WHERE (kind, status) IS DISTINCT FROM (lower(kind), lower(status));
UPDATE dedup.scan_sessions SET status = lower(status) WHERE status <> lower(status);
UPDATE dedup.library_files SET hash_algorithm = lower(hash_algorithm) WHERE hash_algorithm <> lower(hash_algorithm);
UPDATE dedup.thumbnails SET status = lower(status), media_type = lower(media_type), format = lower(format)
 WHERE (status, media_type, format) IS DISTINCT FROM (lower(status), lower(media_type), lower(format));
UPDATE dedup.thumbnail_cleanup_jobs SET status = lower(status) WHERE status <> lower(status);
UPDATE dedup.wal_maintenance_jobs SET status = lower(status), requested_mode = lower(requested_mode)
 WHERE (status, requested_mode) IS DISTINCT FROM (lower(status), lower(requested_mode));

-- what was to be tried again did not say when
UPDATE dedup.jobs SET retry_after = clock_timestamp() WHERE status = 'retryable' AND retry_after IS NULL;
-- one open removal for a group is enough: the oldest
UPDATE dedup.thumbnail_cleanup_jobs AS c
   SET status = 'failed', error_code = 'MIGRATION_ACTIVE_RECOVERY', error_message = 'the group had another removal waiting',
       finished_at = clock_timestamp(), updated_at = clock_timestamp(), lease_expires_at = NULL
 WHERE c.status IN ('pending', 'running')
   AND EXISTS (SELECT FROM dedup.thumbnail_cleanup_jobs AS o WHERE o.group_key = c.group_key AND o.id < c.id
                  AND o.status IN ('pending', 'running'));

-- a hash counts when it is known of what: else the file is hashed again
UPDATE dedup.library_files
   SET hashed_size = size_bytes, hashed_mtime_ns = mtime_ns
 WHERE NOT needs_hash AND content_hash IS NOT NULL AND hashed_size IS NULL AND hashed_mtime_ns IS NULL;
UPDATE dedup.library_files
   SET needs_hash = true, hash_algorithm = NULL, content_hash = NULL
 WHERE (hash_algorithm IS NULL) <> (content_hash IS NULL) OR octet_length(content_hash) <> 32;
UPDATE dedup.library_files SET needs_hash = true
 WHERE NOT needs_hash
   AND (content_hash IS NULL OR (hashed_size, hashed_mtime_ns) IS DISTINCT FROM (size_bytes, mtime_ns));
-- what an older make had queued is planned again by the next job
UPDATE dedup.library_files SET hash_status = 'idle' WHERE hash_status <> 'idle';
