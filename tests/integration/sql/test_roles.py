"""Who may do what, tried as each role: tables, columns, functions, shadows and forged settings."""

import re
from uuid import uuid4

import asyncpg
import pytest

from tests.integration.sql.world import Hand, World

ROLES = ("control", "worker", "maintenance", "console", "client")
LEADER, WORKER, BOTH, NOBODY = {"control"}, {"worker"}, {"control", "worker"}, set[str]()

# Every function of the schema. A new one is listed here, or this test fails.
EXECUTE: dict[str, set[str]] = {
    "acquire": LEADER, "renew": LEADER, "resign": LEADER, "fence": LEADER, "server_identity": BOTH,
    "assign": LEADER, "orphan": LEADER, "confirm": LEADER, "expire": LEADER, "time_out": LEADER,
    "cancel": LEADER, "trigger_job": LEADER, "post_event": LEADER,
    "exhaust": LEADER, "next_attempts": LEADER, "make_partitions": LEADER,
    "read_workers": LEADER, "read_ended": LEADER, "read_due": LEADER, "read_attention": LEADER,
    "assigned": WORKER, "start": WORKER, "beat": WORKER, "confirm_self": WORKER, "finish": WORKER,
    "release": WORKER,
    "leave": WORKER, "append_log": WORKER,
    "enqueue": {"control", "client"},
    "enqueue_many": {"control", "client"},
    "trigger_jobs": {"control"},
    "note_recovery": LEADER, "by_login": NOBODY,
    "request_cancel": LEADER, "request_retry": LEADER, "request_drain": LEADER, "request_resign": LEADER,
    "save_job": LEADER, "remove_job": LEADER, "save_setting": LEADER,
    "apply_jobs": LEADER,
    "create_token": LEADER, "revoke_token": LEADER, "list_tokens": LEADER, "find_token": LEADER,
    "has_token": LEADER, "note_token_use": LEADER, "open_session": LEADER, "use_session": LEADER,
    "close_session": LEADER,
    "archive_log": LEADER, "drop_partitions": LEADER, "forget_discarded": LEADER, "prune_step": LEADER,
    "read_unarchived": LEADER, "run_outcome": {"control", "client"},
    "kept_since": NOBODY, "prune": NOBODY, "prune_runs": NOBODY, "prune_workers": NOBODY,
    "prune_records": NOBODY,
    "read_schedules": LEADER, "fire": LEADER, "process_events": LEADER, "pause_domain": LEADER,
    "emit": {"control", "client"},
    "make_run": NOBODY, "occupying": NOBODY, "locked_job": NOBODY, "time_key": NOBODY,
    "acting": NOBODY, "retry_due": NOBODY, "quiesced": NOBODY, "root_quiesced": NOBODY, "end_queued": NOBODY,
    "note_audit": NOBODY, "heard_at": NOBODY, "in_calendar": NOBODY,
    "guard_run": NOBODY, "guard_new_run": NOBODY, "guard_epoch": NOBODY, "guard_definition": NOBODY,
    "number_fault": NOBODY,
    "declaration_fault": NOBODY, "value_fault": NOBODY, "task_type_of": NOBODY, "marked_in_argv": NOBODY,
    "parameters_of": NOBODY, "describe_parameters": NOBODY, "argument_fault": NOBODY, "base_payload": NOBODY,
    "definition_fault": NOBODY, "own_payload_fault": NOBODY, "own_parameters_fault": NOBODY,
    "declare_task_types": NOBODY, "refuse_program": NOBODY,
    "record_created": NOBODY, "record_moved": NOBODY, "refuse_rewrite": NOBODY,
}  # fmt: skip


async def code(hand: Hand, statement: str) -> str | None:
    """The SQLSTATE of a statement; None = it passed."""
    try:
        await hand.connection.execute(statement)
    except asyncpg.PostgresError as error:
        return error.sqlstate
    return None


async def tables(world: World) -> dict[str, list[str]]:
    rows = await world.admin.sql(
        "SELECT c.oid::regclass::text AS name, array_agg(quote_ident(a.attname)) AS columns FROM pg_class c "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
        "WHERE c.relnamespace = 'supervisor'::regnamespace AND c.relkind IN ('r', 'p') GROUP BY 1"
    )
    return {row["name"]: row["columns"] for row in rows}


@pytest.mark.parametrize("role", ROLES)
async def test_no_runtime_role_writes_a_table(world: World, role: str) -> None:
    """S7, R003-20: INSERT, UPDATE of each column, DELETE and TRUNCATE of each table are refused by rights."""
    await world.running()
    hand = await world.hand(role)
    found = await tables(world)
    assert {"supervisor.job_run", "supervisor.job_run_history_default", "supervisor.leader_epoch"} <= set(
        found
    )
    for table, columns in found.items():
        statements = [f"INSERT INTO {table} DEFAULT VALUES", f"DELETE FROM {table}", f"TRUNCATE {table}"]
        statements += [f"UPDATE {table} SET {column} = DEFAULT" for column in columns]
        statements += [f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE", f"DROP TABLE {table}"]
        for statement in statements:
            assert await code(hand, statement) == ("25P01" if "LOCK" in statement else "42501"), statement
    assert await code(hand, "SELECT setval('supervisor.job_run_id', 1)") == "42501"
    assert await code(hand, "SELECT nextval('supervisor.job_run_id')") == "42501"


@pytest.mark.parametrize("role", ["worker", "console", "client", "maintenance"])
async def test_payloads_and_claims_are_not_for_everyone(world: World, role: str) -> None:
    """S7: a claim is a token; who does not need to read it cannot."""
    hand = await world.hand(role)
    for table in ("job_run", "job_run_history", "job_run_log", "late_finish", "audit", "job_definition"):
        assert await code(hand, f"SELECT FROM supervisor.{table}") == "42501", table


REPORTS = {
    "supervisor.run_report", "supervisor.job_report", "supervisor.worker_report", "supervisor.setting",
    "supervisor.tenure_log", "supervisor.skipped_fire", "supervisor.domain_pause",
    "supervisor.schema_migration", "supervisor.schema_functions",
    "dedup.library_roots", "dedup.library_files", "dedup.scan_sessions", "dedup.scan_errors",
    "identity.users", "identity.accounts", "identity.role_profiles", "logbook.items", "logbook.attachments",
    "scm.repos", "scm.svn_revisions", "scm.git_commits", "scm.patch_blobs", "scm.mrs", "scm.review_events",
    "scm.run_days", "analysis.runs", "analysis.candidates",
    "media_blobs", "media_refs", "media_write_events",
    "schedule_ingest.capture_session", "schedule_ingest.capture_image", "schedule_ingest.day_schedule",
    "schedule_ingest.schedule_version",
}  # fmt: skip


# the story of a write, and what a picture was read as: facts of their domains, not of a run
OWN_WORDS = {
    "media_write_events.payload",
    "media_write_events.result",
    "schedule_ingest.schedule_version.payload",
}


async def test_reports_read_facts_and_no_claim(world: World) -> None:
    """docs/operations.md offers the role for reports; it was refused nearly everything."""
    await world.running()
    console = await world.hand("console")
    readable = await console.sql(
        "SELECT c.oid::regclass::text AS name, (SELECT array_agg(a.attname::text) FROM pg_attribute a"
        " WHERE a.attrelid = c.oid AND has_column_privilege(c.oid, a.attnum, 'SELECT')) AS columns"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p', 'v')"
        " AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'"
        " AND has_any_column_privilege(c.oid, 'SELECT')"
    )
    assert {row["name"] for row in readable} == REPORTS
    columns = {f"{row['name']}.{column}" for row in readable for column in row["columns"]}
    assert not {name for name in columns if re.search(r"claim|secret|\.(payload|result)$", name)} - OWN_WORDS
    assert await console.value("SELECT state FROM supervisor.run_report") == "RUNNING"
    assert await console.value("SELECT name FROM supervisor.job_report") == "work"
    assert await console.value("SELECT state FROM supervisor.worker_report") == "active"


async def test_every_function_is_executable_by_exactly_its_roles(world: World) -> None:
    """S7, R003-20"""
    rows = await world.admin.sql(
        "SELECT p.proname, r.name AS role, has_function_privilege('tenure_' || r.name, p.oid, 'EXECUTE') AS "
        "may "
        "FROM pg_proc p CROSS JOIN unnest($1::text[]) AS r(name) WHERE p.pronamespace = "
        "'supervisor'::regnamespace",
        list(ROLES),
    )
    found: dict[str, set[str]] = {row["proname"]: set() for row in rows}
    for row in rows:
        if row["may"]:
            found[row["proname"]].add(row["role"])
    assert found == EXECUTE


@pytest.mark.parametrize("role", ROLES)
async def test_a_call_without_the_right_is_refused(world: World, role: str) -> None:
    """S7: not only by the catalogue: each function is called, with NULLs, by each role that may not."""
    hand = await world.hand(role)
    rows = await world.admin.sql(
        "SELECT p.proname, format('SELECT FROM supervisor.%I(%s)', p.proname, (SELECT string_agg('NULL::' || "
        "format_type(t, NULL), ', ' ORDER BY n) FROM unnest(p.proargtypes) WITH ORDINALITY AS a(t, n))) AS "
        "call "
        "FROM pg_proc p WHERE p.pronamespace = 'supervisor'::regnamespace AND p.prorettype <> "
        "'trigger'::regtype"
    )
    for row in rows:
        if role not in EXECUTE[row["proname"]]:
            assert await code(hand, row["call"]) == "42501", row["call"]


@pytest.mark.parametrize("role", ROLES)
async def test_a_runtime_role_cannot_become_more(world: World, role: str) -> None:
    hand = await world.hand(role)
    for statement in (
        "SET ROLE tenure_owner", "SET session_replication_role = replica", "CREATE TABLE public.x ()",
        "CREATE TABLE supervisor.x ()", "CREATE SCHEMA x",
        "CREATE FUNCTION public.f() RETURNS integer LANGUAGE sql RETURN 1",
        "ALTER TABLE supervisor.job_run DISABLE TRIGGER ALL",
        "ALTER FUNCTION supervisor.fence(bigint) RESET ALL",
        "CREATE OR REPLACE FUNCTION supervisor.fence(p_epoch bigint) RETURNS void LANGUAGE sql AS ''",
    ):  # fmt: skip
        assert await code(hand, statement) == "42501", statement
    rights = await world.admin.sql(
        "SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls AS more FROM "
        "pg_roles "
        "WHERE rolname = 'tenure_' || $1",
        role,
    )
    assert [row["more"] for row in rights] == [False]


async def test_every_function_that_acts_for_its_owner_pins_its_search_path(world: World) -> None:
    """S8"""
    rows = await world.admin.sql(
        "SELECT p.oid::regprocedure::text AS name, p.proconfig, pg_get_userbyid(p.proowner) AS owner FROM "
        "pg_proc p "
        "WHERE p.pronamespace = 'supervisor'::regnamespace"
    )
    assert rows
    for row in rows:
        assert "search_path=pg_catalog, pg_temp" in (row["proconfig"] or []), row["name"]
        assert row["owner"] == "tenure_owner", row["name"]


SHADOWS = (
    "job_run",
    "worker",
    "leader_epoch",
    "leader_lease",
    "setting",
    "job_definition",
    "late_finish",
    "retry_request",
)


async def shadow(world: World, role: str) -> Hand:
    """A hand of this role that was even given TEMP, and put false tables and functions in front of the real
    ones.
    """
    name = await world.admin.value("SELECT current_database()")
    await world.admin.sql(f'GRANT TEMP ON DATABASE "{name}" TO tenure_{role}')
    hand = await world.hand(role)
    for table in SHADOWS:
        await hand.sql(f"CREATE TEMP TABLE {table} (epoch bigint, claim_id uuid, state text)")
        await hand.sql(f"GRANT ALL ON {table} TO PUBLIC")
    for function in ("clock_timestamp", "gen_random_uuid"):
        kind = "timestamptz" if function == "clock_timestamp" else "uuid"
        await hand.sql(
            f"CREATE FUNCTION pg_temp.{function}() RETURNS {kind} LANGUAGE plpgsql AS 'BEGIN RAISE "
            f"''hijacked''; END'"
        )
    await hand.sql(
        "CREATE FUNCTION pg_temp.fence(bigint) RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE ''hijacked''; "
        "END'"
    )
    await hand.sql("SET search_path = pg_temp, pg_catalog, supervisor")
    return hand


async def test_shadows_in_the_search_path_change_nothing(world: World) -> None:
    """S8: temporary tables and functions under the names that the functions use are never looked at."""
    control, worker, client = [await shadow(world, role) for role in ("control", "worker", "client")]
    run = (await client.enqueue())["id"]
    await worker.beat("w1")
    assert await control.read_due() == [run]
    assert await control.assign(run, "w1") == [run]
    claim = (await worker.assigned("w1"))[0]
    assert await worker.start("w1", claim) == ["RECORDED"]
    claim = await world.held(run)
    assert (await worker.beat("w1", claim))["listed"] == [claim.claim_id]
    assert await worker.finish("w1", claim, state="FAILED", error="X") == ["RECORDED"]
    [again] = await control.next_attempts()
    assert await control.request_cancel(again)
    assert await control.cancel(again) == [again]
    with pytest.raises(asyncpg.PostgresError) as caught:
        await control.assign(again, "w1", epoch=world.epoch + 1)
    assert caught.value.sqlstate == "TN001"


async def test_forged_settings_do_not_reach_the_history(world: World) -> None:
    """No role can put another actor, epoch or reason into the history."""
    hands = {role: await world.hand(role) for role in ("client", "control", "worker")}
    for hand in hands.values():
        for name, value in (
            ("actor", "forged"),
            ("epoch", "424242"),
            ("reason", "forged"),
            ("retention", "on"),
        ):
            await hand.sql(f"SET tenure.{name} = '{value}'")
    run = (await hands["client"].enqueue())["id"]
    await hands["worker"].beat("w1")
    await hands["control"].assign(run, "w1")
    await hands["worker"].start("w1", await world.held(run))
    claim = await world.held(run)
    await hands["worker"].confirm_self("w1", claim)
    await hands["worker"].beat("w1", claim)
    await hands["worker"].finish("w1", claim, state="FAILED", error=None)
    [again] = await hands["control"].next_attempts()
    history = await world.history(run) + await world.history(again)
    assert len(history) == 7
    assert {row["actor"] for row in history} == {"enqueue", "leader", "worker"}
    assert {row["leader_epoch"] for row in history} <= {None, world.epoch}
    assert "forged" not in {row["reason"] for row in history}
    for hand in hands.values():
        assert await code(hand, "DELETE FROM supervisor.job_run_history") == "42501"


async def test_another_workers_claim_is_worth_nothing(world: World) -> None:
    """S23, R003-22: w2 knows the claim of w1 and is refused everywhere, with evidence."""
    waiting, working = await world.assigned("w1"), await world.running("w1")
    await world.worker.beat("w2", waiting, working)
    assert await world.worker.start("w2", waiting) == ["REFUSED"]
    assert await world.worker.release("w2", waiting) == 0
    assert await world.worker.confirm_self("w2", working) == 0
    assert (await world.worker.beat("w2", waiting, working))["listed"] == []
    assert await world.worker.finish("w2", working) == ["SUPERSEDED"]
    added = "SELECT supervisor.append_log('w2', $1, $2, '{0}', '{log}', '{x}')"
    assert await world.worker.value(added, working.id, working.claim_id) == 0
    assert [row["worker_id"] for row in await world.late(working)] == ["w2"]
    assert (await world.state(waiting.id), await world.state(working.id)) == ("ASSIGNED", "RUNNING")
    assert (await world.row(working.id))["executor_stopped_at"] is None


async def test_nobody_acts_in_another_workers_name(world: World) -> None:
    """S23: the login and a name are not enough; without the secret nothing moves and nothing is read."""
    waiting, working = await world.assigned("w1"), await world.running("w1")
    stranger = uuid4()
    before = [await world.row(claim.id) for claim in (waiting, working)]
    for call in (
        "SELECT * FROM supervisor.beat('w1', $1, 99, 0, '{}', '{command}', 9, 7, true)",
        "SELECT supervisor.leave('w1', $1)",
    ):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await world.worker.sql(call, stranger)
        assert refused.value.sqlstate == "TN016"
    assert await world.worker.sql("SELECT * FROM supervisor.assigned('w1', $1)", stranger) == []
    rows = await world.worker.sql(
        "SELECT answer FROM supervisor.start('w1', $1, 99, $2, $3, $4)",
        stranger,
        [waiting.id],
        [waiting.version],
        [waiting.claim_id],
    )
    assert [row["answer"] for row in rows] == ["REFUSED"]
    assert [await world.row(claim.id) for claim in (waiting, working)] == before
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await world.control.sql("SELECT secret FROM supervisor.worker")
