"""Servers that are no Redis: each call is bounded, the loop stays free, and nothing they say decides."""

import asyncio
import resource
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from supervisor.hints import CALL_SECONDS, Hints, say_once
from supervisor.metrics import Metrics
from tests.support.bad_redis import GREETING, HABITS, LEASES_ONLY, stand_in
from tests.support.eventually import eventually

HARMLESS = ("polite", "slow", "shouting", "taken")
BOUND = 0.5  # 200 ms, and the stand-in lives in the same loop


@asynccontextmanager
async def running(url: str, heard: Counter[str]) -> AsyncIterator[tuple[Hints, Metrics]]:
    metrics = Metrics()
    hints = Hints(url, metrics, lambda text: heard.update([text]), lambda: None)
    async with anyio.create_task_group() as group:
        group.start_soon(hints.run)
        yield hints, metrics
        group.cancel_scope.cancel()


@pytest.mark.parametrize("habit", HABITS)
async def test_asking_is_bounded_and_what_is_no_answer_puts_nothing_off(habit: str) -> None:
    """P7: whatever the other end does, asking takes 200 ms at most, and only a plain nil means "taken"."""
    async with stand_in(habit, polite_to=LEASES_ONLY) as bad, running(bad.url, Counter()) as (hints, metrics):
        await eventually(lambda: hints._asking.connected)
        began = time.monotonic()
        taken = await hints.take([1, 2, 3], "mine", 2)
        assert time.monotonic() - began < BOUND
        assert taken == ({1, 2, 3} if habit == "taken" else frozenset())
        if habit in HARMLESS:
            return
        assert metrics.registry.get_sample_value("tenure_redis_errors_total") == 1
        assert metrics.registry.get_sample_value("tenure_redis_open") == 1
        began = time.monotonic()
        for _ in range(100):
            assert await hints.take([1, 2, 3], "mine", 2) == frozenset()
        assert time.monotonic() - began < CALL_SECONDS, "left alone, it costs nothing"


@pytest.mark.parametrize("habit", [habit for habit in HABITS if habit not in HARMLESS])
async def test_it_is_left_alone_whatever_is_asked_and_said_meanwhile(habit: str) -> None:
    async with stand_in(habit) as bad, running(bad.url, Counter()) as (hints, metrics):
        await eventually(lambda: metrics.registry.get_sample_value("tenure_redis_open"))
        until, before = time.monotonic() + 1.5, bad.accepted
        while time.monotonic() < until:
            assert await hints.take([1, 2, 3], "mine", 2) == frozenset()
            hints.say("run")
            hints.drop([1, 2, 3], "mine")
            await asyncio.sleep(0.01)
        assert bad.accepted - before <= 4, "it is tried again after a pause, not at every word"


@pytest.mark.parametrize("habit", HABITS)
async def test_a_client_that_says_one_word_is_not_held_up(habit: str) -> None:
    async with stand_in(habit) as bad:
        began = time.monotonic()
        await say_once(bad.url, "run")
        assert time.monotonic() - began < BOUND


async def test_shouting_wakes_only_so_often_and_leaves_the_loop_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.hints.PACE_SECONDS", 0.1)
    heard: Counter[str] = Counter()
    async with stand_in("shouting") as bad, running(bad.url, heard):
        await eventually(lambda: heard["run"])
        before, began, worst = heard["run"], time.monotonic(), 0.0
        while time.monotonic() - began < 1:
            slept = time.monotonic()
            await asyncio.sleep(0.01)
            worst = max(worst, time.monotonic() - slept)
        assert heard["run"] - before <= 24, "twice in each pace at most"
        assert worst < 0.5


async def test_an_endless_word_does_not_fill_the_memory() -> None:
    async with stand_in("endless", polite_to=(*GREETING, b"SUBSCRIBE")) as bad:
        heard: Counter[str] = Counter()
        async with running(bad.url, heard) as (hints, metrics):
            await eventually(lambda: hints._asking.connected and hints._listening.connected)
            before = resident_bytes()
            await hints._listening.send("PING")  # the next that it hears is an answer without end
            grown = 0
            until = time.monotonic() + 1
            while time.monotonic() < until:
                grown = max(grown, resident_bytes() - before)
                await asyncio.sleep(0.01)
        assert metrics.registry.get_sample_value("tenure_redis_errors_total")
        assert grown < 30_000_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
