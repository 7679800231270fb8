"""The life of a session and its pictures, as the database itself keeps it."""

import asyncio
from typing import Any

import asyncpg
import pytest

from tests.integration.capture.world import SESSION, World, connections
from tests.support.waiting import blocked

STATES = ("pending", "processing", "done", "failed")
MOVES = {
    ("pending", "processing"),
    ("pending", "failed"),
    ("processing", "done"),
    ("processing", "failed"),
}
LEASE: dict[str, dict[str, Any]] = {
    "pending": {"locked_by": None, "locked_at": None, "error": None},
    "done": {"locked_by": None, "locked_at": None, "error": None},
    "failed": {"locked_by": None, "locked_at": None, "error": "a reason"},
}
Refused = asyncpg.PostgresError


async def test_everything_is_in_one_schema_that_the_worker_does_not_own(world: World) -> None:
    """R004-01, R004-02: four tables, owned by the owner; the worker only uses them."""
    rows = await world.admin.fetch(
        "SELECT tablename, tableowner FROM pg_tables WHERE schemaname = 'schedule_ingest' ORDER BY 1"
    )
    assert [tuple(row) for row in rows] == [
        (name, "tenure_owner")
        for name in ("capture_image", "capture_session", "day_schedule", "schedule_version")
    ]
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await world.worker.execute("ALTER TABLE schedule_ingest.capture_session DISABLE TRIGGER ALL")


async def test_the_states_are_these_four(world: World) -> None:
    """R004-03."""
    found = await world.admin.fetchval(
        "SELECT enum_range(NULL::schedule_ingest.capture_session_state)::text[]"
    )
    assert found == list(STATES)


async def test_the_columns_are_those_applications_know(world: World) -> None:
    """R004-10, R004-22, R004-29, R004-33, R004-36, R004-37: names, types and NOT NULL."""
    rows = await world.admin.fetch(
        "SELECT table_name, column_name, data_type, is_nullable = 'NO' AS needed "
        "FROM information_schema.columns WHERE table_schema = 'schedule_ingest'"
    )
    found = {(row["table_name"], row["column_name"]): (row["data_type"], row["needed"]) for row in rows}
    uuid, bigint, integer, text, time = "uuid", "bigint", "integer", "text", "timestamp with time zone"
    wanted = {
        "capture_session": {
            "id": (uuid, True),
            "user_id": (bigint, True),
            "state": ("USER-DEFINED", True),
            "created_at": (time, True),
            "error": (text, False),
            "locked_at": (time, False),
            "locked_by": (text, False),
        },
        "capture_image": {
            "id": (uuid, True),
            "session_id": (uuid, True),
            "sequence": (integer, True),
            "r2_key": (text, True),
            "telegram_message_id": (bigint, False),
            "created_at": (time, True),
        },
        "day_schedule": {
            "user_id": (bigint, True),
            "schedule_date": ("date", True),
            "current_version": (integer, True),
        },
        "schedule_version": {
            "user_id": (bigint, True),
            "schedule_date": ("date", True),
            "version": (integer, True),
            "session_id": (uuid, True),
            "payload": ("jsonb", True),
            "payload_hash": (text, True),
            "created_at": (time, True),
        },
    }
    for table, columns in wanted.items():
        assert {name: found[table, name] for name in columns} == columns
    keys = await world.admin.fetch(
        "SELECT conrelid::regclass::text AS name, pg_get_constraintdef(oid) AS key FROM pg_constraint "
        "WHERE contype = 'p' AND connamespace = 'schedule_ingest'::regnamespace"
    )
    assert {row["name"].partition(".")[2]: row["key"] for row in keys} == {
        "capture_session": "PRIMARY KEY (id)",
        "capture_image": "PRIMARY KEY (id)",
        "day_schedule": "PRIMARY KEY (user_id, schedule_date)",
        "schedule_version": "PRIMARY KEY (user_id, schedule_date, version)",
    }


@pytest.mark.parametrize("after", STATES)
@pytest.mark.parametrize("before", STATES)
async def test_a_session_moves_only_as_it_may(world: World, before: str, after: str) -> None:
    """R004-04 to R004-07, R004-09; processing to processing has tests of its own (R004-08)."""
    session = await world.session_in(before)
    if before == after:
        return
    columns = LEASE.get(after, {"locked_by": "w2", "error": None})
    when = {"locked_at": await world.admin.fetchval("SELECT now()")} if after == "processing" else {}
    if (before, after) in MOVES:
        await world.move(session, after, **columns, **when)
        assert await world.state_of(session) == after
        return
    with pytest.raises(Refused) as refusal:
        await world.move(session, after, **columns, **when)
    assert refusal.value.sqlstate in {"TN010", "TN011"}
    assert await world.state_of(session) == before


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("user_id = 8", "TN013"),
        ("created_at = created_at - interval '1 s'", "TN013"),
        ("id = gen_random_uuid()", "TN013"),
        ("locked_at = locked_at - interval '1 s'", "TN013"),
    ],
)
async def test_what_a_session_is_never_changes(world: World, change: str, code: str) -> None:
    session = await world.session_in("processing")
    with pytest.raises(Refused) as refusal:
        await world.admin.execute(
            f"UPDATE schedule_ingest.capture_session SET {change} WHERE id = $1", session
        )
    assert refusal.value.sqlstate == code


async def test_an_ended_session_keeps_its_words(world: World) -> None:
    """R004-09: neither the error of a failed one nor the token of its claim is rewritten; none is deleted."""
    failed = await world.session_in("failed")
    for change in ("error = 'another'", "claim_id = gen_random_uuid()"):
        with pytest.raises(Refused) as refusal:
            await world.admin.execute(
                f"UPDATE schedule_ingest.capture_session SET {change} WHERE id = $1", failed
            )
        assert refusal.value.sqlstate == "TN010"
    with pytest.raises(Refused):
        await world.admin.execute("DELETE FROM schedule_ingest.capture_session WHERE id = $1", failed)


@pytest.mark.parametrize("age", ["0 s", "299 s"])
async def test_a_fresh_lease_is_not_taken(world: World, age: str) -> None:
    """R004-08, C-64: by another worker, or by the same one with another token."""
    session = await world.session_in("processing", age=age)
    changes = (
        "locked_by = 'w2', locked_at = now()",
        "claim_id = gen_random_uuid()",
        "claim_id = NULL",
        "locked_by = NULL, locked_at = NULL",
    )
    for change in changes:
        with pytest.raises(Refused) as refusal:
            await world.admin.execute(
                f"UPDATE schedule_ingest.capture_session SET {change} WHERE id = $1", session
            )
        assert refusal.value.sqlstate == "TN012"
    row = await world.admin.fetchrow(SESSION, session)
    assert row is not None
    assert row["locked_by"] == "w1"


async def test_a_stale_lease_is_taken_over(world: World) -> None:
    """R004-08, C-64: 300 seconds after the last word."""
    session = await world.session_in("processing", age="300 s")
    await world.claim(session, "w2")
    row = await world.admin.fetchrow(SESSION, session)
    assert row is not None
    assert (row["state"], row["locked_by"]) == ("processing", "w2")


async def test_the_timeout_is_the_databases_own(world: World) -> None:
    """C-64: a shorter one counts at once; a longer one than workers know is refused."""
    session = await world.session_in("processing", age="20 s")
    await world.control.fetchval("SELECT supervisor.save_setting('test', 'capture_lease_seconds', '20')")
    await world.claim(session, "w2")
    with pytest.raises(asyncpg.CheckViolationError):
        await world.control.fetchval("SELECT supervisor.save_setting('test', 'capture_lease_seconds', '301')")


async def test_a_session_given_back_is_anybodys_at_once(world: World) -> None:
    """There is no way back to pending (R004-09): it keeps its owner, with a stale lease (C-69)."""
    session = await world.session_in("processing")
    await world.admin.execute(
        "UPDATE schedule_ingest.capture_session "
        "SET locked_by = NULL, locked_at = NULL, claim_id = NULL WHERE id = $1",
        session,
    )
    row = await world.admin.fetchrow(SESSION, session)
    assert row is not None
    assert (row["state"], row["locked_by"], row["claim_id"]) == ("processing", "w1", None)
    await world.claim(session, "w2")


@pytest.mark.parametrize(
    "columns",
    [
        "(user_id, state, error) VALUES (7, 'pending', 'x')",
        "(user_id, state, error) VALUES (7, 'done', 'x')",
        "(user_id, state) VALUES (7, 'failed')",
        "(user_id, state) VALUES (7, 'processing')",
        "(user_id, state, locked_by) VALUES (7, 'processing', 'w')",
        "(user_id, state, locked_at) VALUES (7, 'processing', now())",
        "(user_id, locked_by, locked_at) VALUES (7, 'w', now())",
        "(user_id, locked_by) VALUES (7, 'w')",
        "(user_id, state, locked_at) VALUES (7, 'done', now())",
    ],
)
async def test_error_and_lease_belong_to_their_states(world: World, columns: str) -> None:
    """R004-11, C-62, C-69."""
    with pytest.raises(asyncpg.CheckViolationError):
        await world.admin.execute(f"INSERT INTO schedule_ingest.capture_session {columns}")


async def test_a_worker_makes_no_session_and_no_picture(world: World) -> None:
    """R004-01: it writes the lease's columns, and what a version has."""
    session = await world.session()
    for statement in (
        "INSERT INTO schedule_ingest.capture_session (user_id) VALUES (7)",
        f"INSERT INTO schedule_ingest.capture_image (session_id, sequence, r2_key) SELECT '{session}', 1, ''",
        "UPDATE schedule_ingest.capture_session SET user_id = 8",
        "UPDATE schedule_ingest.capture_session SET created_at = now()",
        "DELETE FROM schedule_ingest.capture_session",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await world.worker.execute(statement)


@pytest.mark.parametrize("sequence", [0, -1])
async def test_pictures_are_counted_from_one(world: World, sequence: int) -> None:
    """R004-23."""
    with pytest.raises(asyncpg.CheckViolationError):
        await world.image(await world.session(), sequence)


async def test_a_key_and_a_place_are_used_once(world: World) -> None:
    """R004-24, R004-25: a key over all sessions, a place within one."""
    one, other = await world.session(), await world.session()
    await world.image(one, 1, "capture/a")
    for session, sequence, key in ((other, 1, "capture/a"), (one, 2, "capture/a"), (one, 1, "capture/b")):
        with pytest.raises(asyncpg.UniqueViolationError):
            await world.image(session, sequence, key)
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await world.admin.execute(
            "INSERT INTO schedule_ingest.capture_image (session_id, sequence, r2_key) "
            "VALUES (gen_random_uuid(), 1, 'c')"
        )


async def test_pictures_never_change(world: World) -> None:
    """R004-26: not even the administrator's hand changes or removes one."""
    await world.image(await world.session())
    for statement in (
        "UPDATE schedule_ingest.capture_image SET sequence = 2",
        "UPDATE schedule_ingest.capture_image SET r2_key = 'other'",
        "DELETE FROM schedule_ingest.capture_image",
        "TRUNCATE schedule_ingest.capture_image",
    ):
        with pytest.raises(Refused) as refusal:
            await world.admin.execute(statement)
        assert refusal.value.sqlstate == "TN014"


@pytest.mark.parametrize("state", ["processing", "done", "failed"])
async def test_a_picture_comes_before_the_session_is_taken(world: World, state: str) -> None:
    """R004-27, C-63."""
    session = await world.session_in(state)
    with pytest.raises(Refused) as refusal:
        await world.image(session)
    assert refusal.value.sqlstate == "TN021"


async def test_a_picture_that_races_with_a_claim_is_in_or_too_late(world: World) -> None:
    """R004-27: it waits for the claim that is being made, and is then refused."""
    session = await world.session()
    async with connections(world.urls.admin, 1) as (other,):
        async with other.transaction():
            await other.execute(
                "UPDATE schedule_ingest.capture_session "
                "SET state = 'processing', locked_by = 'w', locked_at = now()"
            )
            late = asyncio.create_task(world.image(session))
            await blocked(other, world.admin)
        with pytest.raises(Refused) as refusal:
            await late
        assert refusal.value.sqlstate == "TN021"
