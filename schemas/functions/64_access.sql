-- Tokens and the console's sessions. Locks in one order: the token's row, then its sessions.

CREATE OR REPLACE FUNCTION supervisor.create_token(
    p_actor text, p_name text, p_role text, p_hash text, p_seconds double precision)
RETURNS TABLE (id bigint, expires_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    made record;
BEGIN
    IF NOT (p_seconds > 0 AND p_seconds <= 315360000) THEN
        RAISE EXCEPTION 'a token is for more than 0 seconds and at most 3650 days' USING ERRCODE = 'TN022';
    END IF;
    INSERT INTO supervisor.api_token AS t (name, role, hash, created_by, expires_at)
        VALUES (p_name, p_role, p_hash, p_actor, clock_timestamp() + make_interval(secs => p_seconds))
        ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING
        RETURNING t.id, t.expires_at INTO made;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is a token % already', p_name USING ERRCODE = 'TN021';
    END IF;
    PERFORM supervisor.note_audit(p_actor, 'token.create', 'token:' || p_name, NULL,
        jsonb_build_object('id', made.id, 'role', p_role, 'expires_at', made.expires_at));
    RETURN QUERY SELECT made.id, made.expires_at;
END $$;

-- By id, or by the name of one that is not revoked (else the last that had it). With it go its sessions: whoever logs in
-- at this moment waits for the row and then finds it revoked, or is here already and goes too.
CREATE OR REPLACE FUNCTION supervisor.revoke_token(p_actor text, p_which text)
RETURNS TABLE (id bigint, name text, revoked boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    was record;
BEGIN
    SELECT t.id, t.name, t.role, t.revoked_at INTO was FROM supervisor.api_token t
        WHERE t.id::text = p_which OR t.name = p_which
        ORDER BY t.revoked_at IS NULL DESC, t.id DESC LIMIT 1 FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no token %', p_which USING ERRCODE = 'TN020';
    END IF;
    IF was.revoked_at IS NULL THEN
        UPDATE supervisor.api_token t SET revoked_at = clock_timestamp(), revoked_by = p_actor WHERE t.id = was.id;
        PERFORM supervisor.note_audit(p_actor, 'token.revoke', 'token:' || was.name,
            jsonb_build_object('id', was.id, 'role', was.role), NULL);
    END IF;
    DELETE FROM supervisor.console_session s WHERE s.token_id = was.id;
    RETURN QUERY SELECT was.id, was.name, was.revoked_at IS NULL;
END $$;

CREATE OR REPLACE FUNCTION supervisor.list_tokens()
RETURNS TABLE (id bigint, name text, role text, created_by text, created_at timestamptz, expires_at timestamptz,
    last_used_at timestamptz, revoked_by text, revoked_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.id, t.name, t.role, t.created_by, t.created_at, t.expires_at, t.last_used_at, t.revoked_by, t.revoked_at
    FROM supervisor.api_token t ORDER BY t.id
$$;

-- One that can be used now, and for how long; NULL = without end.
CREATE OR REPLACE FUNCTION supervisor.find_token(p_id bigint)
RETURNS TABLE (name text, role text, hash text, seconds double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.name, t.role, t.hash, extract(epoch FROM t.expires_at - clock_timestamp())::double precision
    FROM supervisor.api_token t
    WHERE t.id = p_id AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp())
$$;

CREATE OR REPLACE FUNCTION supervisor.has_token() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM supervisor.api_token t
        WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp()))
$$;

-- Written every five minutes at most, however many ask.
CREATE OR REPLACE FUNCTION supervisor.note_token_use(p_id bigint) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE supervisor.api_token t SET last_used_at = clock_timestamp()
    WHERE t.id = p_id AND coalesce(t.last_used_at, '-infinity') < clock_timestamp() - interval '5 minutes'
$$;

-- A session begins: false when the token cannot be used (any more). It takes the place of the session that the browser
-- had. What is over goes, and of one token's sessions the newest hundred stay: logins cannot fill the table.
CREATE OR REPLACE FUNCTION supervisor.open_session(
    p_digest bytea, p_token_id bigint, p_shared_proof bytea, p_actor text, p_before bytea) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_token_id IS NOT NULL THEN
        PERFORM FROM supervisor.api_token t WHERE t.id = p_token_id AND t.revoked_at IS NULL
            AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp()) FOR SHARE;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END IF;
    DELETE FROM supervisor.console_session s WHERE s.digest IN (
        SELECT o.digest FROM supervisor.console_session o WHERE o.expires_at < clock_timestamp() OR o.digest = p_before
        ORDER BY o.digest LIMIT 1000 FOR UPDATE SKIP LOCKED);
    DELETE FROM supervisor.console_session s WHERE s.digest IN (
        SELECT o.digest FROM supervisor.console_session o WHERE o.token_id IS NOT DISTINCT FROM p_token_id
        ORDER BY o.created_at DESC OFFSET 99 FOR UPDATE SKIP LOCKED);
    INSERT INTO supervisor.console_session (digest, token_id, shared_proof, expires_at)
        VALUES (p_digest, p_token_id, p_shared_proof, clock_timestamp() + interval '12 hours');
    PERFORM supervisor.note_audit(p_actor, 'console.login', p_actor, NULL, NULL);
    RETURN true;
END $$;

-- Who a session is, if it and its token still are; name and role are NULL where it stands on the environment's token.
-- It ends twelve hours after it was last used, a week after it began, and never later than its token.
CREATE OR REPLACE FUNCTION supervisor.use_session(p_digest bytea)
RETURNS TABLE (name text, role text, shared_proof bytea, seconds double precision)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    known record;
    until timestamptz;
BEGIN
    SELECT s.token_id, s.shared_proof, s.created_at, s.expires_at, t.name, t.role, t.expires_at AS token_end INTO known
    FROM supervisor.console_session s LEFT JOIN supervisor.api_token t ON t.id = s.token_id
    WHERE s.digest = p_digest AND s.expires_at > clock_timestamp() AND t.revoked_at IS NULL
      AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp());
    IF NOT FOUND THEN
        RETURN;
    END IF;
    until := least(clock_timestamp() + interval '12 hours', known.created_at + interval '7 days');
    IF until - known.expires_at > interval '5 minutes' THEN
        PERFORM supervisor.note_token_use(known.token_id);
        UPDATE supervisor.console_session s SET expires_at = until WHERE s.digest = p_digest;
    END IF;
    RETURN QUERY SELECT known.name, known.role, known.shared_proof,
        extract(epoch FROM least(greatest(known.expires_at, until), known.token_end) - clock_timestamp())::double precision;
END $$;

CREATE OR REPLACE FUNCTION supervisor.close_session(p_digest bytea) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM supervisor.console_session s WHERE s.digest = p_digest
$$;
