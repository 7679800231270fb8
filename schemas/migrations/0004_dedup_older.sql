-- Tables of an older make, where some stand under the names of ours. They are looked through before anything is touched: a
-- value that nobody knows ends the migration with its name. Then they step aside into dedup_older, and their rows come over
-- when the new tables stand (0008). They must belong to tenure_owner, as which migrations run. What else is in the schema,
-- such as a ledger of its own, stays as it is; only its foreign keys to these tables go.
CREATE SCHEMA IF NOT EXISTS dedup;
CREATE SCHEMA dedup_older;

DO $$
DECLARE
    ours  text[] := '{library_roots,scan_sessions,library_files,jobs,thumbnails,thumbnail_cleanup_jobs,io_rate_limits,
                      wal_maintenance_jobs}';
    older record;
    bad   text;
BEGIN
    SET LOCAL TimeZone = 'UTC';  -- a time without a zone was one of UTC
    FOR older IN
        SELECT c.relname, c.relowner FROM pg_catalog.pg_class AS c
         WHERE c.relnamespace = 'dedup'::regnamespace AND c.relname = ANY (ours) AND NOT pg_has_role(c.relowner, 'USAGE')
    LOOP
        RAISE EXCEPTION 'dedup.% belongs to %', older.relname, pg_get_userbyid(older.relowner)
            USING HINT = format('ALTER TABLE dedup.%I OWNER TO %I', older.relname, current_user);
    END LOOP;

    -- what holds for v, the value as text, in every column of that name
    FOR older IN
        SELECT c.relname, a.attname, r.holds FROM (VALUES
            ('jobs\.id', $r$v IS NOT NULL AND v::uuid = v::uuid$r$),
            ('(?!jobs).*\.id', $r$v IS NOT NULL AND v::bigint = v::bigint$r$),
            ('jobs\.kind', $r$v IS NOT NULL AND lower(v) IN ('scan', 'hash', 'delete', 'thumbnail')$r$),
            ('jobs\.status', $r$v IS NOT NULL AND lower(v) IN ('pending', 'running', 'completed', 'failed', 'cancelled',
                                'retryable')$r$),
            ('jobs\.progress', $r$nullif(v, '')::double precision BETWEEN 0 AND 1$r$),
            ('jobs\.payload', $r$nullif(v, '')::jsonb = nullif(v, '')::jsonb$r$),
            ('scan_sessions\.status', $r$v IS NOT NULL AND lower(v) IN ('running', 'succeeded', 'failed')$r$),
            ('library_roots\.name', $r$v ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$'$r$),
            ('library_files\.hash_algorithm', $r$lower(v) IN ('blake3', 'sha256')$r$),
            ('thumbnails\.status', $r$v IS NOT NULL AND lower(v) IN ('pending', 'running', 'ready', 'failed')$r$),
            ('thumbnails\.media_type', $r$lower(v) IN ('image', 'video')$r$),
            ('thumbnails\.format', $r$lower(v) IN ('jpeg', 'webp')$r$),
            ('thumbnails\.max_dimension', $r$v::integer BETWEEN 16 AND 2048$r$),
            ('thumbnail_cleanup_jobs\.status', $r$v IS NOT NULL AND lower(v) IN ('pending', 'running', 'completed', 'failed')$r$),
            ('wal_maintenance_jobs\.requested_mode', $r$lower(v) IN ('passive', 'restart', 'truncate')$r$),
            ('wal_maintenance_jobs\.status', $r$v IS NOT NULL AND lower(v) IN ('pending', 'running', 'retryable', 'completed',
                                                'failed')$r$),
            ('.*\.(dry_run|is_missing|needs_hash)', $r$nullif(v, '')::boolean IN (true, false)$r$),
            ('.*(_items|_bytes|_seen|_count|_size)', $r$nullif(v, '')::bigint >= 0$r$),
            ('.*(_at|_after)', $r$nullif(v, '')::timestamptz < 'infinity'$r$),
            ('.*\.library_id', $r$v IN (SELECT l.id::text FROM dedup.library_roots AS l)$r$),
            ('thumbnails\.file_id', $r$v IN (SELECT f.id::text FROM dedup.library_files AS f)$r$)
        ) AS r (place, holds)
          JOIN pg_catalog.pg_class AS c ON c.relnamespace = 'dedup'::regnamespace AND c.relname = ANY (ours)
          JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
           AND (c.relname || '.' || a.attname) ~ ('^(?:' || r.place || ')$')
    LOOP
        EXECUTE format('SELECT coalesce(v, ''NULL'') FROM (SELECT o.%I::text AS v FROM dedup.%I AS o) AS s WHERE NOT (%s) LIMIT 1',
            older.attname, older.relname, older.holds) INTO bad;
        IF bad IS NOT NULL THEN
            RAISE EXCEPTION 'dedup.%.% has the value %, which has no meaning here', older.relname, older.attname, quote_literal(bad)
                USING HINT = 'correct it in the tables of the older make; nothing of them was changed';
        END IF;
    END LOOP;

    FOR older IN SELECT c.relname FROM pg_catalog.pg_class AS c
                  WHERE c.relnamespace = 'dedup'::regnamespace AND c.relname = ANY (ours) LOOP
        EXECUTE format('ALTER TABLE dedup.%I SET SCHEMA dedup_older', older.relname);
    END LOOP;
END $$;
