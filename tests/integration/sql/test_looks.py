"""Looks that begin behind a run: the rest of what a complete look would have shown, in the same order."""

import pytest

from tests.integration.sql.world import World

PRIORITIES = (0, 5, -3, 5, 0, 2147483647, 0, -2147483648, 5)


@pytest.mark.parametrize("room", [2, 20])
async def test_due_runs_behind_another_are_the_rest_of_all(world: World, room: int) -> None:
    for priority in PRIORITIES:
        await world.run(priority=priority)
    everything = await world.control.read_due(room=20)
    assert len(everything) == len(PRIORITIES)
    for place, run in enumerate(everything):
        behind = await world.control.read_due(room=room, after=run)
        assert behind == everything[place + 1 :][:room]


async def test_behind_a_run_that_is_no_longer_there_is_the_beginning(world: World) -> None:
    run = await world.run()
    assert await world.control.read_due(after=run + 1000) == [run]


async def test_the_place_is_that_of_a_run_that_has_moved_on(world: World) -> None:
    first, second = await world.run(), await world.run()
    await world.worker.beat("w1")
    assert await world.control.assign(first, "w1") == [first]
    assert await world.control.read_due(after=first) == [second]
    assert await world.control.read_due(after=second) == []


async def test_assigned_runs_behind_another_are_those_with_larger_ids(world: World) -> None:
    runs = [await world.run(priority=priority) for priority in (0, 9, 0, 9)]
    await world.worker.beat("w1")
    for run in runs:
        assert await world.control.assign(run, "w1") == [run]
    given = [held.id for held in await world.worker.assigned("w1", after=runs[1])]
    assert given == [runs[3], runs[2]]


async def test_ends_are_counted_by_worker_and_domain_since_an_instant(world: World) -> None:
    before = await world.running("w1")
    assert await world.worker.finish("w1", before) == ["RECORDED"]
    since = await world.admin.value("SELECT clock_timestamp()")
    first, second, failed = [await world.running("w1") for _ in range(3)]
    assert await world.worker.finish("w1", first, second) == ["RECORDED", "RECORDED"]
    assert await world.worker.finish("w1", failed, state="FAILED", error="X") == ["RECORDED"]
    rows = await world.control.sql("SELECT * FROM supervisor.read_ended($1)", since)
    assert [(row["worker_id"], row["domain"], row["ended"]) for row in rows] == [("w1", "command", 2)]
