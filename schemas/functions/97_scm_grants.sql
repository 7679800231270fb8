-- Functions only, and what is read; the worker's columns on the runs come from the lease contract. Nobody but the owner writes a
-- table of these schemas.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA identity, logbook, scm, analysis, governance
    FROM PUBLIC, tenure_control, tenure_worker, tenure_maintenance, tenure_console, tenure_client;
REVOKE ALL ON ALL TABLES IN SCHEMA identity, logbook, scm, analysis, governance
    FROM PUBLIC, tenure_control, tenure_worker, tenure_maintenance, tenure_console, tenure_client;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA identity, logbook, scm, analysis, governance
    FROM PUBLIC, tenure_control, tenure_worker, tenure_maintenance, tenure_console, tenure_client;
GRANT USAGE ON SCHEMA identity, logbook, scm, analysis, governance TO tenure_control, tenure_console;
GRANT USAGE ON SCHEMA scm, logbook TO tenure_worker;
GRANT SELECT ON ALL TABLES IN SCHEMA identity, logbook, scm, analysis, governance TO tenure_control;
-- for reports: facts, not the rows of work with their claims
GRANT SELECT ON ALL TABLES IN SCHEMA identity TO tenure_console;
GRANT SELECT ON scm.repos, scm.svn_revisions, scm.git_commits, scm.patch_blobs, scm.mrs, scm.review_events, scm.run_days,
    logbook.items, logbook.attachments, analysis.runs, analysis.candidates TO tenure_console;
-- what a worker reads beside its functions: the rows of its contract, and where the evidence is
GRANT SELECT ON scm.repos, scm.sync_tasks, scm.patch_blobs, logbook.attachments TO tenure_worker;

GRANT EXECUTE ON FUNCTION
    scm.add_repo(text, text, text, text, text, text, jsonb),
    scm.remove_repo(text, text),
    scm.save_task(text, text, text, text, integer, jsonb),
    scm.enable_task(text, text, text),
    scm.disable_task(text, text, text),
    scm.request_sync(text, text, text, text, jsonb, bigint),
    scm.cancel_sync(text, text),
    scm.make_due_runs(bigint),
    scm.recover_runs(bigint),
    scm.purge_runs(bigint),
    scm.cancel_for_ended_runs(bigint),
    scm.read_metrics(),
    identity.save_user(text, text, jsonb),
    identity.save_role(text, text, text, text[], text, text),
    identity.remap_authors(text),
    logbook.add_item(text, text, text, text, jsonb),
    logbook.add_event(bigint, text, text, jsonb),
    logbook.attach(bigint, text, text, text, bigint, jsonb),
    logbook.attach(text, bigint, text, text, text, bigint, jsonb),
    logbook.post(bigint, text, jsonb, text),
    logbook.claim_outbox(text, integer),
    logbook.finish_outbox(bigint, uuid, text),
    governance.switch_team_write(text, text, boolean),
    governance.decide_write(text, text, text, jsonb),
    governance.request_promotion(text, bigint, text, text, jsonb),
    governance.decide_promotion(text, bigint, boolean, text)
    TO tenure_control;

GRANT EXECUTE ON FUNCTION
    scm.request_for_run(bigint, uuid, text, text, jsonb),
    scm.cancel_for_run(bigint, uuid),
    scm.begin_sync(text, uuid, integer),
    scm.record_svn(text, uuid, integer, jsonb, jsonb, jsonb),
    scm.record_git(text, uuid, integer, jsonb, jsonb, jsonb),
    scm.record_mrs(text, uuid, integer, jsonb, jsonb, jsonb),
    scm.record_reviews(text, uuid, integer, jsonb, jsonb, jsonb, jsonb),
    scm.note_head(text, uuid, jsonb, timestamptz),
    scm.note_failure(text, uuid, text, text, text),
    logbook.add_item(text, text, text, text, jsonb),
    logbook.add_event(bigint, text, text, jsonb),
    logbook.attach(bigint, text, text, text, bigint, jsonb),
    logbook.claim_outbox(text, integer),
    logbook.finish_outbox(bigint, uuid, text)
    TO tenure_worker;

-- The table that is claimed from may be vacuumed by tenure_maintenance, which reads none of it. Before PostgreSQL 17: the owner.
GRANT USAGE ON SCHEMA scm TO tenure_maintenance;
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 170000 THEN
        EXECUTE 'GRANT MAINTAIN ON scm.sync_runs TO tenure_maintenance';
    END IF;
END $$;
