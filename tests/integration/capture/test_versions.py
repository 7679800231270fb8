"""Versions of a day and the pointer to the newest, as the database itself keeps them."""

import asyncio
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from actors.capture.canonical import canonical, hash_of
from actors.capture.leases import SESSIONS
from supervisor.lease_sql import render
from tests.integration.capture.world import DAY, VERSION, World, connections
from tests.support.waiting import blocked

Refused = asyncpg.PostgresError


async def test_the_first_version_is_1_and_each_next_one_more(world: World) -> None:
    """R004-31, R004-39: named or not; the pointer follows by the trigger."""
    for number, named in ((1, 1), (2, None), (3, 3)):
        await world.version(number=named)
        assert await world.versions() == list(range(1, number + 1))
        assert await world.current() == number
    await world.version(day=DAY + timedelta(days=1))
    assert await world.current(day=DAY + timedelta(days=1)) == 1
    assert await world.current() == 3


@pytest.mark.parametrize("number", [0, 1, 2, 4])
async def test_gaps_and_repeats_are_refused(world: World, number: int) -> None:
    """R004-39: after two versions, only the third comes next."""
    await world.version()
    await world.version()
    with pytest.raises(Refused) as refusal:
        await world.version(number=number)
    assert refusal.value.sqlstate == "TN015"
    assert (await world.versions(), await world.current()) == ([1, 2], 2)


async def test_those_who_come_together_get_consecutive_versions(world: World) -> None:
    """R004-40, R004-32: ten at once, none lost, and the pointer at the last."""
    sessions = [await world.session_in("processing") for _ in range(10)]
    async with connections(world.urls.admin, 10) as hands:
        await asyncio.gather(
            *(
                hand.execute(VERSION, 7, DAY, None, session, "{}", "ab")
                for hand, session in zip(hands, sessions, strict=True)
            )
        )
    assert (await world.versions(), await world.current()) == (list(range(1, 11)), 10)


async def test_a_version_waits_for_one_that_is_being_written(world: World) -> None:
    """R004-40: the number is taken under a lock, not from what was committed before."""
    first, second = await world.session_in("processing"), await world.session_in("processing")
    async with connections(world.urls.admin, 1) as (other,):
        async with other.transaction():
            await other.execute(VERSION, 7, DAY, None, first, "{}", "ab")
            waiting = asyncio.create_task(world.version(second))
            await blocked(other, world.admin)
        await waiting
    assert (await world.versions(), await world.current()) == ([1, 2], 2)


async def test_a_session_makes_one_version(world: World) -> None:
    """R004-34."""
    session = await world.session_in("processing")
    await world.version(session)
    with pytest.raises(asyncpg.UniqueViolationError):
        await world.version(session)
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await world.admin.execute(VERSION, 7, DAY, None, UUID(int=5), "{}", "ab")


async def test_a_version_is_of_the_sessions_own_user(world: World) -> None:
    """R004-41."""
    session = await world.session_in("processing", user=8)
    with pytest.raises(Refused) as refusal:
        await world.version(session, user=7)
    assert refusal.value.sqlstate == "TN013"


@pytest.mark.parametrize("payload", ["[]", '"x"', "1", "null", "true"])
async def test_a_payload_is_an_object(world: World, payload: str) -> None:
    """R004-35."""
    with pytest.raises(asyncpg.CheckViolationError):
        await world.version(payload=payload)


@pytest.mark.parametrize("hash_", ["", "  "])
async def test_a_blank_hash_is_refused(world: World, hash_: str) -> None:
    """R004-36, C-66."""
    with pytest.raises(asyncpg.CheckViolationError):
        await world.version(hash_=hash_)
    with pytest.raises(asyncpg.NotNullViolationError):
        await world.admin.execute(VERSION, 7, DAY, None, await world.session_in("processing"), "{}", None)


def test_the_hash_is_of_the_canonical_text() -> None:
    """R004-36, C-66: sorted keys, no spaces, UTF-8, non-ASCII kept."""
    payload = {"b": [1, {"z": None, "a": "Frühstück"}], "a": "日"}
    assert canonical(payload) == '{"a":"日","b":[1,{"a":"Frühstück","z":null}]}'
    assert hash_of(payload) == "31042e5ba76064f3dfbcd099ab234d5f423752b11f593ae1bf987d84a939ea66"


async def test_versions_never_change(world: World) -> None:
    """R004-38."""
    await world.version()
    for statement in (
        """UPDATE schedule_ingest.schedule_version SET payload = '{"a": 1}'""",
        "UPDATE schedule_ingest.schedule_version SET version = 2",
        "DELETE FROM schedule_ingest.schedule_version",
        "TRUNCATE schedule_ingest.schedule_version",
    ):
        with pytest.raises(Refused) as refusal:
            await world.admin.execute(statement)
        assert refusal.value.sqlstate == "TN014"


async def test_the_worker_does_not_write_the_pointer(world: World) -> None:
    """R004-30: neither the pointer nor a version's number is the worker's to say."""
    await world.version()
    for statement in (
        "INSERT INTO schedule_ingest.day_schedule VALUES (7, '2026-01-01', 1)",
        "UPDATE schedule_ingest.day_schedule SET current_version = 2",
        "DELETE FROM schedule_ingest.day_schedule",
        "TRUNCATE schedule_ingest.day_schedule",
        "UPDATE schedule_ingest.schedule_version SET version = 9",
        "DELETE FROM schedule_ingest.schedule_version",
        "INSERT INTO schedule_ingest.schedule_version (user_id, version) VALUES (7, 2)",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await world.worker.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE schedule_ingest.day_schedule SET current_version = 1",
        "UPDATE schedule_ingest.day_schedule SET current_version = 3",
        "UPDATE schedule_ingest.day_schedule SET schedule_date = '2026-01-01'",
        "INSERT INTO schedule_ingest.day_schedule VALUES (8, '2026-01-01', 1)",
        "DELETE FROM schedule_ingest.day_schedule",
        "TRUNCATE schedule_ingest.day_schedule",
    ],
)
async def test_the_pointer_is_at_the_newest_whoever_writes(world: World, statement: str) -> None:
    """R004-29, R004-32: it never goes back, ahead, elsewhere or away."""
    await world.version()
    await world.version()
    with pytest.raises(Refused):
        await world.admin.execute(statement)
    assert await world.current() == 2


@pytest.mark.parametrize("state", ["pending", "failed"])
async def test_what_has_not_been_read_makes_no_version(world: World, state: str) -> None:
    """R004-45: and nobody, whatever the rights, makes one."""
    session = await world.session_in(state)
    with pytest.raises(Refused) as refusal:
        await world.version(session)
    assert refusal.value.sqlstate == "TN011"


async def test_what_has_made_a_version_has_not_failed(world: World) -> None:
    """R004-45."""
    session = await world.session_in("processing")
    await world.version(session)
    with pytest.raises(Refused) as refusal:
        await world.move(session, "failed", locked_by=None, locked_at=None, error="late")
    assert refusal.value.sqlstate == "TN011"


STATEMENTS = render(SESSIONS)


async def claimed(world: World, worker: str = "w1") -> tuple[UUID, UUID]:
    [row] = await world.worker.fetch(STATEMENTS.claim.sql, worker, 1, "capture")
    return row["c0"], row["c1"]


async def finish(
    world: World, session: UUID, token: UUID, worker: str = "w1", *, hash_: str = "ab", skip: bool = False
) -> str:
    arrays = ([session], [token], [DAY], ["{}"], [hash_], [skip])
    [row] = await world.worker.fetch(STATEMENTS.finish["done"].sql, worker, *arrays)
    answer: str = row["answer"]
    return answer


async def test_the_end_of_a_session_and_its_version_are_one(world: World) -> None:
    """R004-43, R004-44: one statement; when the version cannot be, the session is not done."""
    await world.session()
    session, token = await claimed(world)
    with pytest.raises(asyncpg.CheckViolationError):
        await finish(world, session, token, hash_=" ")
    assert await world.state_of(session) == "processing"
    assert await finish(world, session, token) == "RECORDED"
    assert (await world.state_of(session), await world.versions()) == ("done", [1])
    assert await finish(world, session, token) == "ALREADY"
    assert await world.versions() == [1]


async def test_a_late_worker_writes_no_version(world: World) -> None:
    """R004-19, R004-46: its finish finds nothing, and by its own hand it may not either."""
    await world.session()
    session, token = await claimed(world)
    async with world.admin.transaction():
        await world.admin.execute("SET LOCAL session_replication_role = replica")
        await world.admin.execute(
            "UPDATE schedule_ingest.capture_session SET locked_at = now() - interval '300 s'"
        )
    assert (await claimed(world, "w2"))[0] == session
    assert await finish(world, session, token) == "SUPERSEDED"
    with pytest.raises(Refused) as refusal:
        await world.worker.execute(
            "INSERT INTO schedule_ingest.schedule_version "
            "(user_id, schedule_date, session_id, payload, payload_hash) VALUES (7, $1, $2, '{}', 'ab')",
            DAY,
            session,
        )
    assert refusal.value.sqlstate == "TN011"
    assert await world.versions() == []


async def test_an_unchanged_day_is_a_version_unless_that_is_skipped(world: World) -> None:
    """C-67: one version a session; where skip_unchanged is set, only when something changed."""
    seen = []
    for hash_, skip in (("aa", False), ("aa", False), ("aa", True), ("bb", True), ("aa", True)):
        await world.session()
        session, token = await claimed(world)
        assert await finish(world, session, token, hash_=hash_, skip=skip) == "RECORDED"
        assert await world.state_of(session) == "done"
        seen.append(len(await world.versions()))
    assert seen == [1, 2, 2, 3, 4]
