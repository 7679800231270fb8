-- People as their files say, and whom a name in a repository means.

-- {"display_name", "aliases": [...], "is_active", "accounts": {"svn": [...], "gitlab": [...], "git": [...], "email": [...]}, "meta"}:
-- what is named is set; accounts are the whole list. A name that is somebody else's is refused.
CREATE OR REPLACE FUNCTION identity.save_user(p_actor text, p_user text, p_spec jsonb) RETURNS SETOF identity.users
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was   identity.users;
    saved identity.users;
    held  identity.accounts;
BEGIN
    IF coalesce(p_user, '') !~ '^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$' OR jsonb_typeof(p_spec) IS DISTINCT FROM 'object'
       OR coalesce(jsonb_typeof(p_spec -> 'accounts'), 'object') <> 'object' THEN
        RAISE EXCEPTION 'user % cannot be understood', p_user USING ERRCODE = 'TN022';
    END IF;
    SELECT u.* INTO was FROM identity.users u WHERE u.user_id = p_user FOR UPDATE;
    INSERT INTO identity.users AS u (user_id, display_name, aliases, is_active, meta_json)
    VALUES (p_user, coalesce(p_spec ->> 'display_name', ''),
        ARRAY(SELECT jsonb_array_elements_text(coalesce(p_spec -> 'aliases', '[]'))),
        coalesce((p_spec ->> 'is_active')::boolean, true), coalesce(p_spec -> 'meta', '{}'))
    ON CONFLICT (user_id) DO UPDATE SET
        display_name = CASE WHEN p_spec ? 'display_name' THEN excluded.display_name ELSE u.display_name END,
        aliases = CASE WHEN p_spec ? 'aliases' THEN excluded.aliases ELSE u.aliases END,
        is_active = CASE WHEN p_spec ? 'is_active' THEN excluded.is_active ELSE u.is_active END,
        meta_json = CASE WHEN p_spec ? 'meta' THEN excluded.meta_json ELSE u.meta_json END, updated_at = clock_timestamp()
    RETURNING u.* INTO saved;
    IF p_spec ? 'accounts' THEN
        DELETE FROM identity.accounts a WHERE a.user_id = p_user AND NOT EXISTS (SELECT FROM identity.accounts_of(p_spec -> 'accounts') g
            WHERE g.type = a.type AND g.name = a.name);
        INSERT INTO identity.accounts (user_id, type, name)
        SELECT p_user, g.type, g.name FROM identity.accounts_of(p_spec -> 'accounts') g ORDER BY g.type, g.name
        ON CONFLICT (type, name) DO NOTHING;
        SELECT a.* INTO held FROM identity.accounts a JOIN identity.accounts_of(p_spec -> 'accounts') g USING (type, name)
         WHERE a.user_id <> p_user LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION '% % is the account of %', held.type, held.name, held.user_id USING ERRCODE = 'TN021';
        END IF;
    END IF;
    PERFORM supervisor.note_audit(p_actor, 'user.save', 'user:' || p_user, to_jsonb(was), p_spec);
    RETURN NEXT saved;
END $$;

CREATE OR REPLACE FUNCTION identity.accounts_of(p_accounts jsonb) RETURNS TABLE (type text, name text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT DISTINCT t.key, CASE t.key WHEN 'email' THEN lower(n.name) ELSE n.name END
      FROM jsonb_each(p_accounts) AS t
     CROSS JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(t.value) WHEN 'array' THEN t.value ELSE jsonb_build_array(t.value) END) AS n (name)
$$;

CREATE OR REPLACE FUNCTION identity.save_role(p_actor text, p_user text, p_role text, p_labels text[], p_profile text, p_source text)
RETURNS SETOF identity.role_profiles
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    saved identity.role_profiles;
BEGIN
    PERFORM FROM identity.users u WHERE u.user_id = p_user FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no user %', p_user USING ERRCODE = 'TN020';
    END IF;
    INSERT INTO identity.role_profiles AS r (user_id, role, labels, profile, sha256, source)
    VALUES (p_user, p_role, coalesce(p_labels, '{}'), coalesce(p_profile, ''),
        encode(sha256(convert_to(coalesce(p_profile, ''), 'UTF8')), 'hex'), coalesce(p_source, ''))
    ON CONFLICT (user_id, role) DO UPDATE SET labels = excluded.labels, profile = excluded.profile, sha256 = excluded.sha256, source = excluded.source,
        updated_at = clock_timestamp() RETURNING r.* INTO saved;
    PERFORM supervisor.note_audit(p_actor, 'role.save', 'user:' || p_user, NULL,
        jsonb_build_object('role', p_role, 'sha256', saved.sha256, 'source', saved.source));
    RETURN NEXT saved;
END $$;

-- Facts that were written before their author was known, or after somebody else was meant by the name; a stretch of rows a call
-- would be of no use: each is found by the accounts of people, and few of them change.
CREATE OR REPLACE FUNCTION identity.remap_authors(p_actor text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    total   bigint := 0;
    changed bigint;
BEGIN
    UPDATE scm.svn_revisions s SET author_user_id = a.user_id, updated_at = clock_timestamp() FROM identity.accounts a
     WHERE a.type = 'svn' AND a.name = s.author_raw AND s.author_user_id IS DISTINCT FROM a.user_id;
    GET DIAGNOSTICS changed = ROW_COUNT;
    total := total + changed;
    UPDATE scm.git_commits s SET author_user_id = a.user_id, updated_at = clock_timestamp() FROM identity.accounts a
     WHERE a.type = 'email' AND a.name = lower(s.meta_json ->> 'author_email') AND s.author_user_id IS DISTINCT FROM a.user_id;
    GET DIAGNOSTICS changed = ROW_COUNT;
    total := total + changed;
    UPDATE scm.git_commits s SET author_user_id = a.user_id, updated_at = clock_timestamp() FROM identity.accounts a
     WHERE s.author_user_id IS NULL AND a.type = 'git'
       AND a.name IN (s.meta_json ->> 'author_email', regexp_replace(s.author_raw, ' <[^>]*>$', ''));
    GET DIAGNOSTICS changed = ROW_COUNT;
    total := total + changed;
    UPDATE scm.mrs s SET author_user_id = a.user_id, updated_at = clock_timestamp() FROM identity.accounts a
     WHERE a.type = 'gitlab' AND a.name = s.author_raw AND s.author_user_id IS DISTINCT FROM a.user_id;
    GET DIAGNOSTICS changed = ROW_COUNT;
    total := total + changed;
    UPDATE scm.review_events s SET reviewer_user_id = a.user_id, updated_at = clock_timestamp() FROM identity.accounts a
     WHERE a.type = 'gitlab' AND a.name = s.reviewer_raw AND s.reviewer_user_id IS DISTINCT FROM a.user_id;
    GET DIAGNOSTICS changed = ROW_COUNT;
    total := total + changed;
    PERFORM supervisor.note_audit(p_actor, 'user.remap', 'users', NULL, jsonb_build_object('changed', total));
    RETURN total;
END $$;
