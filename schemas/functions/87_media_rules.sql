-- The rules of the writing, changed by people, each change in the audit.

CREATE OR REPLACE FUNCTION media.save_role(
    p_actor text, p_role text, p_max_position integer, p_mime_types text[], p_may_replace boolean, p_is_rendered boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was jsonb := (SELECT to_jsonb(r) FROM media.role_rules r WHERE r.role = p_role FOR UPDATE);
    saved media.role_rules;
BEGIN
    IF EXISTS (SELECT FROM unnest(p_mime_types) AS t (type) WHERE t.type !~ '^(\*|[a-z]+/(\*|[a-z0-9.+-]+))$')
       OR coalesce(cardinality(p_mime_types), 0) = 0 THEN
        RAISE EXCEPTION 'types are written as image/png, image/* or *' USING ERRCODE = 'TN022';
    END IF;
    INSERT INTO media.role_rules AS r (role, max_position, mime_types, may_replace, is_rendered)
    VALUES (p_role, p_max_position, p_mime_types, p_may_replace, p_is_rendered)
    ON CONFLICT (role) DO UPDATE SET max_position = excluded.max_position, mime_types = excluded.mime_types,
        may_replace = excluded.may_replace, is_rendered = excluded.is_rendered
    RETURNING r.* INTO saved;
    PERFORM supervisor.note_audit(p_actor, 'media.role', 'role:' || p_role, was, to_jsonb(saved));
END $$;

CREATE OR REPLACE FUNCTION media.remove_role(p_actor text, p_role text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was media.role_rules;
BEGIN
    DELETE FROM media.role_rules r WHERE r.role = p_role RETURNING r.* INTO was;
    IF was.role IS NULL THEN
        RAISE EXCEPTION 'no role %', p_role USING ERRCODE = 'TN020';
    END IF;
    PERFORM supervisor.note_audit(p_actor, 'media.role', 'role:' || p_role, to_jsonb(was), NULL);
END $$;

CREATE OR REPLACE FUNCTION media.save_rendition(p_actor text, p_name text, p_max_dimension integer, p_format text, p_quality integer)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was jsonb := (SELECT to_jsonb(n) FROM media.rendition_rules n WHERE n.name = p_name FOR UPDATE);
    saved media.rendition_rules;
BEGIN
    INSERT INTO media.rendition_rules AS n (name, max_dimension, format, quality) VALUES (p_name, p_max_dimension, p_format, p_quality)
    ON CONFLICT (name) DO UPDATE SET max_dimension = excluded.max_dimension, format = excluded.format, quality = excluded.quality
    RETURNING n.* INTO saved;
    PERFORM supervisor.note_audit(p_actor, 'media.rendition', 'rendition:' || p_name, was, to_jsonb(saved));
END $$;

CREATE OR REPLACE FUNCTION media.remove_rendition(p_actor text, p_name text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was media.rendition_rules;
BEGIN
    DELETE FROM media.rendition_rules n WHERE n.name = p_name RETURNING n.* INTO was;
    IF was.name IS NULL THEN
        RAISE EXCEPTION 'no rendition %', p_name USING ERRCODE = 'TN020';
    END IF;
    UPDATE media.rendition_jobs j SET again = true WHERE j.rendition = p_name;
    PERFORM supervisor.note_audit(p_actor, 'media.rendition', 'rendition:' || p_name, to_jsonb(was), NULL);
END $$;

-- Exactly these write to it from now on; none of them: everybody.
CREATE OR REPLACE FUNCTION media.save_writers(p_actor text, p_workspace text, p_writers text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was jsonb := (SELECT jsonb_agg(w.actor ORDER BY w.actor) FROM media.workspace_writers w WHERE w.workspace_id = p_workspace);
BEGIN
    DELETE FROM media.workspace_writers w WHERE w.workspace_id = p_workspace;
    INSERT INTO media.workspace_writers (workspace_id, actor) SELECT DISTINCT p_workspace, a.name FROM unnest(p_writers) AS a (name);
    PERFORM supervisor.note_audit(p_actor, 'media.writers', 'workspace:' || p_workspace, was, to_jsonb(p_writers));
END $$;
