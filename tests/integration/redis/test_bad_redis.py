"""Servers that are no Redis: each call is bounded, the loop stays free, and nothing they say decides."""

import asyncio
import resource
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from supervisor.hints import CALL_SECONDS, Hints, say_once
from supervisor.metrics import Metrics
from supervisor.redisline import ANSWER_BYTES
from tests.support.bad_redis import HABITS, stand_in
from tests.support.eventually import eventually

HARMLESS = ("polite", "slow", "shouting", "taken")
SLACK = 0.3  # the stand-in lives in the same loop


@asynccontextmanager
async def running(url: str, heard: Counter[str]) -> AsyncIterator[tuple[Hints, Metrics]]:
    metrics = Metrics()
    hints = Hints(url, metrics, lambda text: heard.update([text]), lambda: None)
    async with anyio.create_task_group() as group:
        group.start_soon(hints.run)
        yield hints, metrics
        group.cancel_scope.cancel()


@pytest.mark.parametrize("habit", HABITS)
async def test_a_call_is_bounded_and_what_is_no_answer_puts_nothing_off(habit: str) -> None:
    """P7: whatever the other end does, asking takes 200 ms at most, and only a plain nil means "taken"."""
    async with stand_in(habit) as url, running(url, Counter()) as (hints, metrics):
        longest = 0.0
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            began = time.monotonic()
            taken = await hints.take([1, 2, 3], "mine", 2)
            longest = max(longest, time.monotonic() - began)
            assert taken == frozenset() or habit == "taken"
            hints.say("run")
            hints.drop([1, 2, 3], "mine")
            await asyncio.sleep(0.02)
        assert longest < CALL_SECONDS + SLACK
        failed = metrics.registry.get_sample_value("tenure_redis_errors_total")
        assert failed or habit in HARMLESS


async def test_a_plain_nil_means_taken() -> None:
    async with stand_in("taken") as url, running(url, Counter()) as (hints, _):

        async def taken() -> bool:
            return await hints.take([1, 2], "mine", 2) == {1, 2}

        await eventually(taken)


@pytest.mark.parametrize("habit", HABITS)
async def test_a_client_that_says_one_word_is_not_held_up(habit: str) -> None:
    async with stand_in(habit) as url:
        began = time.monotonic()
        await say_once(url, "run")
        assert time.monotonic() - began < CALL_SECONDS + SLACK


async def test_shouting_wakes_only_so_often_and_leaves_the_loop_free() -> None:
    heard: Counter[str] = Counter()
    async with stand_in("shouting") as url, running(url, heard):
        await eventually(lambda: heard["run"])
        before, began, worst = heard["run"], time.monotonic(), 0.0
        while time.monotonic() - began < 1:
            slept = time.monotonic()
            await asyncio.sleep(0.01)
            worst = max(worst, time.monotonic() - slept)
        assert heard["run"] - before <= 210, "twice in each hundredth of a second at most"
        assert worst < 0.5


async def test_an_endless_answer_does_not_fill_the_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with stand_in("endless") as url, running(url, Counter()) as (_, metrics):
        await eventually(lambda: metrics.registry.get_sample_value("tenure_redis_errors_total"))
        await asyncio.sleep(1)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 50_000, f"{grown} kB more"
    assert ANSWER_BYTES < 50_000
