"""Many runs in one call are what so many calls in one transaction would be."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from tests.integration.sql.test_enqueue import refusal, runs
from tests.integration.sql.world import Hand, World

ANSWER = "SELECT id, state, created FROM supervisor.enqueue_many($1, $2::text[]::jsonb[], $3) ORDER BY place"


async def many(
    hand: Hand, payloads: Sequence[Any], keys: Sequence[str | None] | None = None, job: str = "work"
) -> list[asyncpg.Record]:
    return await hand.sql(ANSWER, job, [json.dumps(one) for one in payloads], keys)


async def test_they_are_made_in_their_order_with_the_job_s_own_options(world: World) -> None:
    parameters = {"b": {"type": "integer", "default": 1}}
    await world.job(
        "many", payload={"a": 1}, parameters=parameters, priority=3, max_attempts=5, timeout_seconds=9
    )
    made = await many(await world.hand("client"), [{"b": number} for number in range(3)], job="many")
    assert [tuple(row)[1:] for row in made] == [("PENDING", True)] * 3
    rows = [await world.row(row["id"]) for row in made]
    assert [json.loads(row["payload"]) for row in rows] == [{"a": 1, "b": number} for number in range(3)]
    columns = ("priority", "max_attempts", "timeout_seconds", "attempt", "starts")
    assert {tuple(row[name] for name in columns) for row in rows} == {(3, 5, 9.0, 1, 0)}
    assert [row["root_id"] for row in rows] == [row["id"] for row in made]
    assert [await world.path(row["id"]) for row in made] == [["PENDING"]] * 3
    assert len(await world.control.read_due()) == 3


async def test_they_appear_exactly_if_the_transaction_commits(world: World) -> None:
    client = await world.hand("client")
    await client.begin()
    await many(client, [{}] * 5)
    await client.rollback()
    assert await runs(world) == 0


async def test_a_key_is_one_run_also_within_a_call(world: World) -> None:
    old = await world.run(key="old")
    made = await many(world.control, [{}] * 5, ["old", "new", None, "new", None])
    assert [row["created"] for row in made] == [False, True, True, False, True]
    assert made[0]["id"] == old
    assert made[1]["id"] == made[3]["id"]
    assert len({row["id"] for row in made}) == 4
    again = await many(world.control, [{}] * 2, ["new", "old"])
    assert [(row["id"], row["created"]) for row in again] == [(made[1]["id"], False), (old, False)]


async def test_one_that_is_refused_refuses_all(world: World) -> None:
    await world.run(key="used", payload={"a": 1})
    before = await runs(world)
    for payloads, keys, code in (
        ([{}, {"a": 2}], ["k", "used"], "TN021"),
        ([{"a": 1}, {"a": 2}], ["k", "k"], "TN021"),
        ([{}, [1]], None, "TN022"),
        ([{}, {"a": "x" * 262144}], None, "TN022"),
        ([{}, {}], ["k", "retry:1"], "TN022"),
        ([{}, {}], ["k", ""], "TN022"),
        ([{}, {}], ["k"], "TN022"),
        ([{}] * 10001, None, "TN022"),
    ):
        assert await refusal(many(world.control, payloads, keys)) == code, (keys, code)
    assert await refusal(many(world.control, [{}], job="unknown")) == "TN020"
    assert await runs(world) == before


async def test_a_bounded_job_bounds_them_too(world: World) -> None:
    await world.job("alone", concurrency=2, concurrency_policy="forbid")
    assert len(await many(world.control, [{}] * 2, job="alone")) == 2
    assert await refusal(many(world.control, [{}], job="alone")) == "TN021"
    await world.job("newest", concurrency=1, concurrency_policy="replace")
    made = [row["id"] for row in await many(world.control, [{}] * 3, job="newest")]
    assert [(await world.row(run))["cancel_requested_at"] is not None for run in made] == [True, True, False]


async def test_two_calls_with_the_same_keys_in_another_order_make_each_once(world: World) -> None:
    keys = [f"k{number:03}" for number in range(200)]
    hands = [await world.hand("client") for _ in range(4)]
    calls = [many(hand, [{}] * 200, keys[::step]) for hand, step in zip(hands, (1, -1, 1, -1), strict=True)]
    answers = await asyncio.gather(*calls)
    assert sum(row["created"] for answer in answers for row in answer) == 200
    assert await runs(world) == 200


async def test_keys_are_taken_in_their_order_not_in_that_of_the_call(world: World) -> None:
    """Whoever waits for the first key holds none that comes after it: so nobody waits in a circle."""
    first, second = await world.hand("client"), await world.hand("client")
    await first.begin()
    await first.enqueue(key="a")
    waiting = await world.waiting(second, many(second, [{}, {}], ["b", "a"]))
    assert (await first.enqueue(key="b"))["created"]
    await first.commit()
    assert [row["created"] for row in await waiting] == [False, False]


@pytest.mark.parametrize("commits", [True, False])
async def test_one_key_from_two_sides(world: World, commits: bool) -> None:
    first, second = await world.hand("client"), await world.hand("client")
    await first.begin()
    await first.enqueue(key="k")
    waiting = await world.waiting(second, many(second, [{}, {}], ["k", "l"]))
    await (first.commit() if commits else first.rollback())
    assert [row["created"] for row in await waiting] == [not commits, True]


async def test_nothing_is_asked_for(world: World) -> None:
    assert await many(world.control, []) == []
