"""Work that appears exactly if the caller's transaction commits, and once for one key."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import asyncpg
import pytest

from tests.integration.sql.world import World


async def refusal(call: Coroutine[Any, Any, Any]) -> str | None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await call
    return caught.value.sqlstate


async def runs(world: World) -> int:
    return int(await world.admin.value("SELECT count(*) FROM supervisor.job_run"))


async def test_an_application_enqueues_inside_its_own_transaction(world: World) -> None:
    client = await world.hand("client")
    await client.begin()
    await client.enqueue()
    assert await world.control.read_due() == []
    await client.commit()
    assert len(await world.control.read_due()) == 1


async def test_a_transaction_that_fails_leaves_nothing(world: World) -> None:
    client = await world.hand("client")
    await client.begin()
    await client.enqueue(key="order 7")
    await client.rollback()
    assert await runs(world) == 0
    assert await world.admin.value("SELECT count(*) FROM supervisor.job_run_history") == 0
    assert (await client.enqueue(key="order 7"))["created"]


@pytest.mark.parametrize("commits", [True, False])
async def test_one_key_from_two_sides(world: World, commits: bool) -> None:
    """R003-05, R003-24, R003-26: the second waits for the first, and knows what became of it."""
    first, second = await world.hand("client"), await world.hand("client")
    await first.begin()
    one = await first.enqueue(key="k")
    waiting = await world.waiting(second, second.enqueue(key="k"))
    await (first.commit() if commits else first.rollback())
    two = await waiting
    assert (two["created"], two["id"] == one["id"]) == (not commits, commits)
    assert await runs(world) == 1


async def test_many_at_once_with_one_key(world: World) -> None:
    """R003-24"""
    hands = [await world.hand("client") for _ in range(6)]
    answers = await asyncio.gather(*(hand.enqueue(key="k") for hand in hands))
    assert sum(row["created"] for row in answers) == 1
    assert len({row["id"] for row in answers}) == 1


async def test_a_repeated_key_tells_the_state_of_its_run(world: World) -> None:
    claim = await world.running(run=await world.run(key="k"))
    again = await world.control.enqueue(key="k")
    assert tuple(again) == (claim.id, "RUNNING", False)


async def test_a_key_with_other_work_is_a_conflict(world: World) -> None:
    await world.job("other")
    await world.run(key="k", payload={"a": 1})
    assert await refusal(world.control.enqueue(key="k", payload={"a": 2})) == "TN021"
    assert await refusal(world.control.enqueue("other", key="k", payload={"a": 1})) == "TN021"
    assert not (await world.control.enqueue(key="k", payload={"a": 1}))["created"]


@pytest.mark.parametrize("key", ["time:1:2030", "retry:1:2", "event:x", "", "k" * 201])
async def test_keys_that_are_ours_or_of_a_wrong_length_are_refused(world: World, key: str) -> None:
    assert await refusal(world.control.enqueue(key=key)) == "TN022"
    assert await runs(world) == 0


async def test_bad_input_changes_nothing(world: World) -> None:
    assert await refusal(world.control.enqueue("unknown")) == "TN020"
    assert await refusal(world.control.enqueue(payload={"a": "x" * 262144})) == "TN022"
    for payload in ([1], 1, "text"):
        call = world.control.sql("SELECT supervisor.enqueue('work', $1::text::jsonb)", json.dumps(payload))
        assert await refusal(call) == "TN022"
    assert await runs(world) == 0


async def test_a_removed_job_takes_nothing_new(world: World) -> None:
    """The removal waits for the enqueue in flight and sees it."""
    client = await world.hand("client")
    await client.begin()
    await client.enqueue()
    removal = await world.waiting(
        world.control, world.control.sql("SELECT supervisor.remove_job('anna', 'work')")
    )
    await client.commit()
    assert await refusal(removal_of(removal)) == "TN021"


async def removal_of(task: "asyncio.Task[Any]") -> Any:
    return await task


async def test_the_run_takes_what_its_job_says(world: World) -> None:
    await world.job(
        "full",
        payload={"a": 1},
        parameters={"b": {"type": "integer", "default": 1}},
        priority=5,
        max_attempts=7,
        timeout_seconds=9,
        action="go",
    )
    row = await world.row(await world.run("full", payload={"b": 2}, priority=5))
    assert json.loads(row["payload"]) == {"a": 1, "b": 2}
    assert (row["priority"], row["max_attempts"], row["timeout_seconds"], row["action"]) == (5, 7, 9.0, "go")
    assert row["root_id"] == row["id"]


async def test_due_runs_come_in_claim_order(world: World) -> None:
    """Larger priority first, then the earlier, then the smaller id; what is not due is not there."""
    low, high, second = await world.run(), await world.run(priority=5), await world.run()
    later = await world.run(priority=9)
    await world.unguarded(f"UPDATE supervisor.job_run SET not_before = 'infinity' WHERE id = {later}")
    assert await world.control.read_due() == [high, low, second]
    await world.worker.beat("w1")
    assert await world.control.assign(later, "w1") == []


@pytest.mark.parametrize("moment", ["infinity", "-infinity"])
async def test_a_run_is_due_at_a_finite_time(world: World, moment: str) -> None:
    """Before PostgreSQL 17 it cannot be subtracted: one such row would stop every assignment."""
    with pytest.raises(asyncpg.PostgresError) as refused:
        await world.control.sql(f"SELECT supervisor.enqueue('work', '{{}}', NULL, '{moment}')")
    assert refused.value.sqlstate == "TN022"
    run = await world.run()
    await world.unguarded(f"UPDATE supervisor.job_run SET not_before = '-infinity' WHERE id = {run}")
    await world.worker.beat("w1")
    assert await world.control.assign(run, "w1") == [run]
