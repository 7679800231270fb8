-- Who may write for a team, and what was decided each time.
CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON governance.write_audit
    FOR EACH ROW EXECUTE FUNCTION logbook.refuse_rewrite();
CREATE OR REPLACE TRIGGER append_only_all BEFORE TRUNCATE ON governance.write_audit
    FOR EACH STATEMENT EXECUTE FUNCTION logbook.refuse_rewrite();

CREATE OR REPLACE FUNCTION governance.switch_team_write(p_actor text, p_project_key text, p_enabled boolean) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was boolean := (SELECT s.team_write_enabled FROM governance.settings s WHERE s.project_key = p_project_key);
BEGIN
    INSERT INTO governance.settings AS s (project_key, team_write_enabled, updated_by) VALUES (p_project_key, p_enabled, p_actor)
    ON CONFLICT (project_key) DO UPDATE SET team_write_enabled = p_enabled, updated_by = p_actor, updated_at = clock_timestamp();
    PERFORM supervisor.note_audit(p_actor, 'governance.team_write', 'project:' || p_project_key, to_jsonb(was), to_jsonb(p_enabled));
    RETURN coalesce(was, false);
END $$;

-- Decides on a write and notes the decision: into one's own space always, into a team's where the switch is on; else it goes to
-- the writer's own space. Without evidence a team's space takes nothing.
CREATE OR REPLACE FUNCTION governance.decide_write(p_actor text, p_project_key text, p_space text, p_evidence jsonb)
RETURNS TABLE (action text, written_space text, reason text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    own      text := 'user:' || p_actor;
    decision record;
BEGIN
    IF p_space = own THEN
        decision := ROW ('allow', own, 'own_space');
    ELSIF p_space NOT LIKE 'team:%' THEN
        decision := ROW ('reject', NULL::text, 'unknown_space');
    ELSIF NOT coalesce((SELECT s.team_write_enabled FROM governance.settings s WHERE s.project_key = p_project_key), false) THEN
        decision := ROW ('redirect', own, 'team_write_disabled');
    ELSIF coalesce(p_evidence, '[]') = '[]' THEN
        decision := ROW ('reject', NULL::text, 'no_evidence');
    ELSE
        decision := ROW ('allow', p_space, 'team_write_enabled');
    END IF;
    RETURN QUERY INSERT INTO governance.write_audit AS w (actor, project_key, target_space, action, written_space, reason, evidence_refs_json)
        VALUES (p_actor, p_project_key, p_space, decision.f1, decision.f2, decision.f3, coalesce(p_evidence, '[]'))
        RETURNING w.action, w.written_space, w.reason;
END $$;

CREATE OR REPLACE FUNCTION governance.request_promotion(p_actor text, p_candidate bigint, p_from text, p_to text, p_evidence jsonb) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made governance.promotion_queue;
BEGIN
    INSERT INTO governance.promotion_queue AS p (candidate_id, from_space, to_space, requested_by, evidence_refs_json)
    VALUES (p_candidate, p_from, p_to, p_actor, coalesce(p_evidence, '[]')) RETURNING p.* INTO made;
    PERFORM supervisor.note_audit(p_actor, 'governance.promotion', 'promotion:' || made.promotion_id, NULL, to_jsonb(made));
    RETURN made.promotion_id;
END $$;

CREATE OR REPLACE FUNCTION governance.decide_promotion(p_actor text, p_promotion bigint, p_approve boolean, p_reason text)
RETURNS SETOF governance.promotion_queue
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    done governance.promotion_queue;
BEGIN
    UPDATE governance.promotion_queue p SET status = CASE WHEN p_approve THEN 'approved' ELSE 'rejected' END, decided_by = p_actor,
           decided_at = clock_timestamp(), reason = coalesce(p_reason, '')
     WHERE p.promotion_id = p_promotion AND p.status = 'pending' RETURNING p.* INTO done;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'promotion % is not waiting for a decision', p_promotion USING ERRCODE = 'TN021';
    END IF;
    PERFORM supervisor.note_audit(p_actor, 'governance.promotion', 'promotion:' || p_promotion, NULL, to_jsonb(done));
    RETURN NEXT done;
END $$;
