"""What must never happen to a row, tried by the most powerful hand there is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from supervisor.jobrun import MOVES, STATES, TERMINAL, State
from tests.integration.sql.world import CONFIRM_AFTER, World

CLAIM = "gen_random_uuid()"
FACTS: dict[str, str] = {
    "PENDING": "claim_id = NULL, assigned_worker_id = NULL, assigned_epoch = NULL",
    "ORPHANED": "claim_id = NULL, assigned_worker_id = NULL",
    "ASSIGNED": f"claim_id = {CLAIM}, assigned_worker_id = 'w1', assigned_epoch = 1, assigned_at = now()",
    "RUNNING": "leader_epoch = 1, started_at = now(), start_beat_no = 1",
}
ENDED = "finished_at = now(), finished_by = 'worker'"


async def put(world: World, state: str) -> int:
    """A run in this state, put there by legal moves."""
    run = await world.run()
    path = {
        "PENDING": [], "ASSIGNED": ["ASSIGNED"], "RUNNING": ["ASSIGNED", "RUNNING"],
        "ORPHANED": ["ASSIGNED", "ORPHANED"],
    }.get(state, ["ASSIGNED", "RUNNING", state])  # fmt: skip
    for step in path:
        await move(world, run, step)
    return run


async def move(world: World, run: int, state: str) -> None:
    """One UPDATE that is right in everything but, perhaps, the move itself."""
    old = await world.row(run)
    counted = ""
    if old["state"] == "ORPHANED" and state == "ASSIGNED":
        counted = ", attempt = attempt + 1"
    if old["state"] == "ASSIGNED" and state == "RUNNING":
        counted = ", starts = starts + 1"
    facts = FACTS.get(state, ENDED)
    await world.admin.sql(
        f"UPDATE supervisor.job_run SET state = '{state}', version = version + 1, {facts}{counted} WHERE id "
        f"= $1",
        run,
    )


async def attempt(world: World, run: int, state: str) -> str | None:
    """The SQLSTATE of a move; None = it passed."""
    try:
        await move(world, run, state)
    except asyncpg.PostgresError as error:
        return error.sqlstate
    return None


@asynccontextmanager
async def refused(world: World, *codes: str) -> AsyncIterator[None]:
    """The statement is refused with one of these SQLSTATEs; nothing else of the transaction is lost."""
    async with world.admin.connection.transaction():
        with pytest.raises(asyncpg.PostgresError) as caught:
            async with world.admin.connection.transaction():
                yield
        assert caught.value.sqlstate in codes, caught.value


async def update(world: World, run: int, changes: str) -> None:
    await world.admin.sql(f"UPDATE supervisor.job_run SET {changes} WHERE id = $1", run)


async def test_exactly_the_moves_of_the_table_pass(world: World) -> None:
    """R003-06 to R003-15: all 64 pairs; the database's matrix and the Python table are the same."""
    passed: set[tuple[State, State]] = set()
    for source in STATES:
        for target in STATES:
            if source == target:
                continue
            run = await put(world, source)
            code = await attempt(world, run, target)
            if code is None:
                passed.add((source, target))
            else:
                assert code == ("TN010" if source in TERMINAL else "TN011"), (source, target, code)
                assert await world.state(run) == source
    assert passed == set(MOVES)


async def test_a_state_outside_the_eight_is_refused(world: World) -> None:
    """R003-06"""
    run = await put(world, "RUNNING")
    async with refused(world, "TN011", "23514"):
        await update(world, run, "state = 'SKIPPED', version = version + 1")


@pytest.mark.parametrize(
    "changes",
    [
        "version = version + 1",
        "version = version - 1",
        f"state = 'ASSIGNED', {FACTS['ASSIGNED']}",
        f"state = 'ASSIGNED', {FACTS['ASSIGNED']}, version = version + 2",
        f"state = 'ASSIGNED', {FACTS['ASSIGNED']}, version = 0",
    ],
)
async def test_the_version_counts_each_change_by_one(world: World, changes: str) -> None:
    """R003-02, R003-03, H25: the version never stands still, jumps or goes back."""
    run = await put(world, "PENDING")
    async with refused(world, "TN012"):
        await update(world, run, changes)


async def test_a_continuation_change_counts_too(world: World) -> None:
    """R003-16, R003-17: CONFIRMING and back while the state stays RUNNING, each one version."""
    run = await put(world, "RUNNING")
    confirming = (
        "continuation_state = 'CONFIRMING', continuation_reason = 'SILENT', "
        "continuation_check_deadline_at = now()"
    )
    async with refused(world, "TN012"):
        await update(world, run, confirming)
    await update(world, run, f"{confirming}, version = version + 1")
    clear = "continuation_state = 'NONE', continuation_check_deadline_at = NULL"
    async with refused(world, "TN012"):
        await update(world, run, clear)
    await update(world, run, f"{clear}, version = version + 1")
    history = await world.history(run)
    assert [row["continuation_state"] for row in history] == ["NONE", "NONE", "NONE", "CONFIRMING", "NONE"]
    assert {row["to_state"] for row in history[2:]} == {"RUNNING"}


@pytest.mark.parametrize("state", ["PENDING", "ASSIGNED", "ORPHANED"])
async def test_only_a_running_run_can_be_confirming(world: World, state: str) -> None:
    """R003-16"""
    run = await put(world, state)
    async with refused(world, "23514"):
        await update(
            world, run,
            "version = version + 1, continuation_state = 'CONFIRMING', continuation_reason = 'SILENT', "
            "continuation_check_deadline_at = now()",
        )  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        "continuation_state = 'MAYBE'",
        "continuation_state = 'CONFIRMING', continuation_reason = 'SILENT'",
        "continuation_state = 'CONFIRMING', continuation_check_deadline_at = now()",
    ],
)
async def test_confirming_has_a_deadline_and_a_reason(world: World, changes: str) -> None:
    """R003-16, R003-43"""
    run = await put(world, "RUNNING")
    async with refused(world, "23514"):
        await update(world, run, f"version = version + 1, {changes}")


@pytest.mark.parametrize("state", sorted(TERMINAL))
async def test_an_ended_run_never_changes(world: World, state: str) -> None:
    """R003-15, P2: every column of a terminal row, tried one by one."""
    run = await put(world, state)
    columns = await world.admin.sql(
        "SELECT attname AS name, format_type(atttypid, atttypmod) AS kind FROM pg_attribute "
        "WHERE attrelid = 'supervisor.job_run'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    once = {"executor_stopped_at", "next_attempt_id", "log_ref"}
    before = await world.row(run)
    for column in columns:
        if column["name"] in once:
            continue
        value = another(column["kind"], before[column["name"]])
        async with refused(world, "TN010"):
            await update(world, run, f"{column['name']} = {value}")
    assert await world.row(run) == before


async def test_the_three_late_facts_are_written_once(world: World) -> None:
    run = await put(world, "FAILED")
    facts = {"executor_stopped_at": "now()", "next_attempt_id": "7", "log_ref": "'file'"}
    for column, value in facts.items():
        await update(world, run, f"{column} = {value}")
    for column, value in {
        "executor_stopped_at": "'-infinity'",
        "next_attempt_id": "8",
        "log_ref": "'x'",
    }.items():
        async with refused(world, "TN010"):
            await update(world, run, f"{column} = {value}")
        async with refused(world, "TN010"):
            await update(world, run, f"{column} = NULL")
    assert await world.path(run) == ["PENDING", "ASSIGNED", "RUNNING", "FAILED"]


@pytest.mark.parametrize(
    "changes",
    [
        "id = id + 1000", "root_id = 0", "job_definition_id = 0", "domain = 'x'", "action = 'x'",
        "payload = '{\"a\": 1}'",
        "idempotency_key = 'x'", "scheduled_for = now()", "retry_of_id = 0", "created_at = now()",
        "max_attempts = 99",
        "priority = 9",
    ],
)  # fmt: skip
@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
async def test_what_a_run_is_never_changes(world: World, state: str, changes: str) -> None:
    run = await put(world, state)
    async with refused(world, "TN013"):
        await update(world, run, changes)


@pytest.mark.parametrize(
    ("state", "changes"),
    [
        ("ASSIGNED", f"claim_id = {CLAIM}"),
        ("ASSIGNED", "assigned_worker_id = 'w2'"),
        ("ASSIGNED", "assigned_epoch = 9"),
        ("ASSIGNED", "leader_epoch = 9"),
        ("RUNNING", f"claim_id = {CLAIM}"),
        ("RUNNING", "assigned_worker_id = 'w2'"),
        ("RUNNING", "assigned_epoch = 9"),
        ("RUNNING", "leader_epoch = 9"),
        ("RUNNING", "started_at = now() - interval '1 hour'"),
        ("RUNNING", "attempt = 2"),
        ("RUNNING", "starts = 2"),
        ("RUNNING", f"state = 'SUCCEEDED', version = version + 1, {ENDED}, leader_epoch = 9"),
        ("RUNNING", f"state = 'SUCCEEDED', version = version + 1, {ENDED}, claim_id = {CLAIM}"),
        ("PENDING", "attempt = 2"),
        ("ORPHANED", "attempt = 2"),
        ("ORPHANED", f"state = 'ASSIGNED', version = version + 1, {FACTS['ASSIGNED']}"),
        ("PENDING", f"state = 'ASSIGNED', version = version + 1, attempt = 2, {FACTS['ASSIGNED']}"),
        ("ASSIGNED", f"state = 'RUNNING', version = version + 1, {FACTS['RUNNING']}"),
    ],
)
async def test_the_token_is_stamped_once_by_its_own_move(world: World, state: str, changes: str) -> None:
    """R003-18, R003-19, R003-23: claim, epoch, attempt and starts change with their move and never else."""
    run = await put(world, state)
    async with refused(world, "TN013"):
        await update(world, run, changes)


@pytest.mark.parametrize("missing", ["leader_epoch", "started_at", "start_beat_no"])
async def test_a_running_run_has_its_epoch(world: World, missing: str) -> None:
    """R003-18, H28"""
    run = await put(world, "ASSIGNED")
    facts = ", ".join(fact for fact in FACTS["RUNNING"].split(", ") if not fact.startswith(missing))
    async with refused(world, "23514"):
        await update(world, run, f"state = 'RUNNING', version = version + 1, starts = starts + 1, {facts}")


async def test_a_cancel_request_is_not_taken_back(world: World) -> None:
    run = await put(world, "PENDING")
    await update(world, run, "cancel_requested_at = now()")
    async with refused(world, "TN013"):
        await update(world, run, "cancel_requested_at = NULL")


async def test_starts_stay_within_max_attempts(world: World) -> None:
    await world.job("never", max_attempts=1)
    run = await world.run("never")
    async with refused(world, "23514"):
        await world.unguarded(f"UPDATE supervisor.job_run SET starts = 2 WHERE id = {run}")


@pytest.mark.parametrize("statement", ["DELETE FROM supervisor.job_run", "TRUNCATE supervisor.job_run"])
async def test_runs_are_not_removed(world: World, statement: str) -> None:
    """R003-01"""
    await world.run()
    async with refused(world, "TN014"):
        await world.admin.sql(statement)


INSERT = (
    "INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, max_attempts, "
    "{columns}) "
    "VALUES (1000, {root}, 1, 'command', '{{}}', 3, {values})"
)


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("version", "2"),
        *(("state", f"'{state}'") for state in STATES if state != "PENDING"),
        ("continuation_state", "'CONFIRMING'"),
    ],
)
async def test_a_run_begins_as_pending(world: World, columns: str, values: str) -> None:
    async with refused(world, "TN011"):
        await world.admin.sql(INSERT.format(columns=columns, values=values, root=1000))


async def test_the_keys_of_a_run_are_unique(world: World) -> None:
    """R003-01, R003-24, R003-25, R003-33: slot, key, attempt of a root, one live row a root."""
    run = await world.run(key="k")
    await world.admin.sql(
        "INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, max_attempts, "
        "scheduled_for) "
        "VALUES (999, 999, 1, 'command', '{}', 3, '2030-01-01Z')"
    )
    taken: list[tuple[str, str, int]] = [
        ("scheduled_for", "'2030-01-01 00:00:00+00'", 1000),
        ("idempotency_key", "'k'", 1000),
        ("attempt", "1", run),
        ("attempt", "2", run),
    ]
    for columns, values, root in taken:
        async with refused(world, "23505"):
            await world.admin.sql(INSERT.format(columns=columns, values=values, root=root))


async def test_a_root_succeeds_once(world: World) -> None:
    """P2: a second row of the root may be made by the owner, but not end as SUCCEEDED."""
    first = await put(world, "SUCCEEDED")
    await world.admin.sql(INSERT.format(columns="attempt", values="2", root=first))
    await move(world, 1000, "ASSIGNED")
    await move(world, 1000, "RUNNING")
    async with refused(world, "23505"):
        await move(world, 1000, "SUCCEEDED")


async def test_each_version_stands_in_the_history(world: World) -> None:
    """R003-01: who, under which epoch, why; one row a version, without a gap."""
    claim = await world.running()
    await world.silence("w1", CONFIRM_AFTER + 1)
    await world.control.confirm({"w1": await world.seq("w1")})
    await world.worker.beat("w1", claim)
    assert await world.worker.finish("w1", claim, state="FAILED", error="BROKEN") == ["RECORDED"]
    history = await world.history(claim.id)
    assert [row["version"] for row in history] == list(range(1, (await world.row(claim.id))["version"] + 1))
    assert [(row["from_state"], row["to_state"], row["actor"], row["reason"]) for row in history] == [
        (None, "PENDING", "enqueue", "TRIGGERED"),
        ("PENDING", "ASSIGNED", "leader", "ASSIGNED"),
        ("ASSIGNED", "RUNNING", "worker", "STARTED"),
        ("RUNNING", "RUNNING", "leader", "SILENT"),
        ("RUNNING", "RUNNING", "worker", "CONFIRMED"),
        ("RUNNING", "FAILED", "worker", "BROKEN"),
    ]
    assert {row["leader_epoch"] for row in history[1:]} == {world.epoch}
    assert {row["claim_id"] for row in history[1:]} == {claim.claim_id}
    assert {row["worker_id"] for row in history[1:]} == {"w1"}
    assert {row["attempt"] for row in history} == {1}


async def test_facts_without_a_version_leave_no_history(world: World) -> None:
    run = await put(world, "PENDING")
    await world.control.request_cancel(run)
    assert await world.path(run) == ["PENDING"]


@pytest.mark.parametrize("table", ["job_run_history", "tenure_log", "audit"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET at = now()", "DELETE FROM {}", "TRUNCATE {}"])
async def test_records_are_only_added_to(world: World, table: str, statement: str) -> None:
    """R003-01: also the owner cannot rewrite history, tenures and audit."""
    await put(world, "RUNNING")
    assert await world.admin.value(f"SELECT count(*) FROM supervisor.{table}")
    async with refused(world, "TN014"):
        await world.admin.sql(statement.format(f"supervisor.{table}"))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE supervisor.leader_epoch SET epoch = epoch - 1, first_epoch = 0",
        "UPDATE supervisor.leader_epoch SET epoch = epoch",
        "UPDATE supervisor.leader_epoch SET holder = 'me'",
        "UPDATE supervisor.leader_epoch SET epoch = epoch + 1, first_epoch = first_epoch - 1",
        "DELETE FROM supervisor.leader_epoch",
        "TRUNCATE supervisor.leader_epoch",
    ],
)
async def test_the_epoch_only_grows(world: World, statement: str) -> None:
    """R003-21"""
    async with refused(world, "TN015"):
        await world.admin.sql(statement)


async def test_there_is_one_epoch_in_a_logged_table(world: World) -> None:
    async with refused(world, "23505", "23514"):
        await world.admin.sql("INSERT INTO supervisor.leader_epoch DEFAULT VALUES")
    async with refused(world, "23514"):
        await world.admin.sql("INSERT INTO supervisor.leader_epoch (one) VALUES (false)")
    kind = await world.admin.value(
        "SELECT relpersistence FROM pg_class WHERE oid = 'supervisor.leader_epoch'::regclass"
    )
    assert kind == b"p"


def another(kind: str, old: Any) -> str:
    """A literal of this type that differs from the old value."""
    samples = {
        "bigint": ["4242", "4243"], "integer": ["4242", "4243"], "double precision": ["42.5", "43.5"],
        "text": ["'other'", "'another'"], "uuid": ["gen_random_uuid()"] * 2,
        "jsonb": ["'{\"other\": 1}'"] * 2,
        "timestamp with time zone": ["'2001-01-01Z'"] * 2,
    }  # fmt: skip
    first, second = samples[kind]
    return second if old is not None and first.strip("'") == str(old) else first
