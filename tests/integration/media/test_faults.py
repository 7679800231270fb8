"""A write that fails half way: nothing of it is done, and it is told; or it never was."""

from uuid import uuid4

import asyncpg
import pytest

from tests.integration.media.world import SLOT, World, blob, refused, slot

FAILING = """
CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'the disk says %', TG_TABLE_NAME USING ERRCODE = '{code}'; END $$;
CREATE {kind} TRIGGER fail {when} ON public.{table} {deferred} FOR EACH ROW {condition}
    EXECUTE FUNCTION public.fail();
"""


async def fail_at(
    world: World, when: str, table: str, *, code: str = "P0001", condition: str = "", deferred: bool = False
) -> None:
    await world.admin.execute(
        FAILING.format(
            code=code,
            kind="CONSTRAINT" if deferred else "",
            when=when,
            table=table,
            deferred="DEFERRABLE INITIALLY DEFERRED" if deferred else "",
            condition=condition,
        )
    )


@pytest.mark.parametrize(
    ("when", "table"),
    [
        ("BEFORE INSERT", "media_blobs"),
        ("AFTER INSERT", "media_blobs"),
        ("BEFORE INSERT", "media_refs"),
        ("AFTER INSERT", "media_refs"),
        ("AFTER UPDATE", "media_refs"),
    ],
)
async def test_a_write_that_fails_is_undone_and_told(world: World, when: str, table: str) -> None:
    """R002-32, R002-36: between blob and ref, before and behind them; FAILED with code and message stays."""
    await world.attached("old")
    before = await world.tables()
    await fail_at(world, when, table)
    request = uuid4()
    answer = await world.attach("new", request=request)
    assert (answer["decision"], answer["result"], answer["ref_id"]) == ("REPLACE", "FAILED", None)
    assert await world.tables() == before, "no write without an event"
    assert await world.story(request) == [
        ("WRITE_REQUEST", None, None),
        ("WRITE_DECISION", "REPLACE", None),
        ("WRITE_RESULT", None, "FAILED"),
    ], "no event without a write"
    last = (await world.events(request))[-1]
    assert (last["error_code"], last["error_message"]) == ("P0001", f"the disk says {table}")
    again = await world.attach("new", request=request)
    assert (again["is_replay"], again["result"], again["error_code"]) == (True, "FAILED", "P0001")


async def test_what_would_fail_at_the_commit_is_told_too(world: World) -> None:
    """R002-36: a constraint that waits for the commit is asked before."""
    await fail_at(world, "AFTER INSERT", "media_refs", deferred=True)
    request = uuid4()
    answer = await world.attach("a", request=request)
    assert (answer["result"], answer["error_code"]) == ("FAILED", "P0001")
    assert await world.tables() == [[], []]
    assert (await world.story(request))[-1] == ("WRITE_RESULT", None, "FAILED")
    last = (await world.events(request))[-1]
    assert (last["error_code"], last["error_message"]) == ("P0001", "the disk says media_refs")


@pytest.mark.parametrize("event", ["WRITE_REQUEST", "WRITE_DECISION", "WRITE_DB", "WRITE_RESULT"])
async def test_a_write_whose_event_fails_is_not_done(world: World, event: str) -> None:
    """R002-32: whichever of the events cannot be written."""
    await fail_at(
        world, "BEFORE INSERT", "media_write_events", condition=f"WHEN (NEW.event_type = '{event}')"
    )
    request = uuid4()
    try:
        answer = await world.attach("a", request=request)
    except asyncpg.PostgresError as error:
        told = (event != "WRITE_DB", error.sqlstate)
    else:
        told = (event == "WRITE_DB", answer["error_code"])
    assert told == (True, "P0001")
    assert await world.tables() == [[], []]
    assert len(await world.events(request)) == (3 if event == "WRITE_DB" else 0)


@pytest.mark.parametrize("code", ["40P01", "40001", "55P03", "53100"])
async def test_what_is_only_to_be_repeated_leaves_no_trace(world: World, code: str) -> None:
    """R002-36: a deadlock is no failure of the request; it comes again under its id."""
    await fail_at(world, "BEFORE INSERT", "media_refs", code=code)
    request = uuid4()
    await refused(code, world.attach("a", request=request))
    assert (await world.tables(), await world.events(request)) == ([[], []], [])
    await world.admin.execute("DROP TRIGGER fail ON public.media_refs")
    assert (await world.attach("a", request=request))["result"] == "OK_INSERTED"


async def test_a_caller_that_rolls_back_takes_the_events_along(world: World) -> None:
    """R002-32: they are in the caller's transaction, whatever he does with it."""
    request = uuid4()
    transaction = world.control.transaction()
    await transaction.start()
    await world.write("attach", SLOT, blob("a"), request=request)
    assert await world.control.fetchval("SELECT count(*) FROM public.media_write_events") == 5
    await transaction.rollback()
    assert (await world.tables(), await world.events(request)) == ([[], []], [])


async def test_a_move_that_fails_leaves_both_where_they_were(world: World) -> None:
    """R002-32, R002-21"""
    one, other = await world.attached("a", slot(0)), await world.attached("b", slot(1))
    before = await world.tables()
    await fail_at(world, "BEFORE UPDATE", "media_refs", condition=f"WHEN (OLD.id = {other})")
    assert (await world.move(one, 1))["result"] == "FAILED"
    assert await world.tables() == before
