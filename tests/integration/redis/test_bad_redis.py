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

from supervisor import hints
from supervisor.hints import CALL_SECONDS, Hints, say_once, text_of
from supervisor.metrics import Metrics
from tests.support.bad_redis import GREETING, HABITS, LEASES_ONLY, stand_in
from tests.support.eventually import eventually
from tests.support.redis import at_once
from tests.support.slowness import patient, slowness

HARMLESS = ("polite", "slow", "shouting", "taken")
BOUND = 0.5  # 200 ms, and the stand-in lives in the same loop
PACE_SECONDS = 0.1


@pytest.fixture(autouse=True)
def longer_on_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """And always less than what is too slow."""
    monkeypatch.setattr(hints, "CALL_SECONDS", min(0.8, CALL_SECONDS * slowness()))


@asynccontextmanager
async def running(url: str, heard: Counter[str]) -> AsyncIterator[tuple[Hints, Metrics]]:
    metrics = Metrics()
    link = Hints(url, metrics, lambda text: heard.update([text]), lambda: None)
    async with anyio.create_task_group() as group:
        group.start_soon(link.run)
        yield link, metrics
        group.cancel_scope.cancel()


@pytest.mark.parametrize("habit", HABITS)
async def test_asking_is_bounded_and_what_is_no_answer_puts_nothing_off(habit: str) -> None:
    """P7: whatever the other end does, asking takes 200 ms at most, and only a plain nil means "taken"."""
    async with stand_in(habit, polite_to=LEASES_ONLY) as bad, running(bad.url, Counter()) as (link, metrics):
        await eventually(lambda: link._asking.connected)
        with anyio.fail_after(patient(BOUND)):
            taken = await link.take([1, 2, 3], "mine", 2)
        assert taken == ({1, 2, 3} if habit == "taken" else frozenset())
        if habit in HARMLESS:
            return
        assert metrics.registry.get_sample_value("tenure_redis_errors_total") == 1
        assert metrics.registry.get_sample_value("tenure_redis_open") == 1
        assert at_once(link.take([1, 2, 3], "mine", 2)) == frozenset(), "left alone, it costs nothing"


@pytest.mark.parametrize("habit", [habit for habit in HABITS if habit not in HARMLESS])
async def test_it_is_left_alone_whatever_is_asked_and_said_meanwhile(habit: str) -> None:
    async with stand_in(habit) as bad, running(bad.url, Counter()) as (link, metrics):
        await eventually(lambda: metrics.registry.get_sample_value("tenure_redis_open"))
        began, before = time.monotonic(), bad.accepted
        while time.monotonic() < began + 1.5:
            assert await link.take([1, 2, 3], "mine", 2) == frozenset()
            link.say("run")
            link.drop([1, 2, 3], "mine")
            await asyncio.sleep(0.01)
        allowed = 4 * (time.monotonic() - began) / 1.5
        assert bad.accepted - before <= allowed, "it is tried again after a pause, not at every word"


@pytest.mark.parametrize("habit", HABITS)
async def test_a_client_that_says_one_word_is_not_held_up(habit: str) -> None:
    async with stand_in(habit) as bad:
        with anyio.fail_after(patient(BOUND)):
            said = await say_once(bad.url, "run")
        assert not (said and habit == "too-slow"), "it waited for the answer"


async def test_shouting_wakes_and_is_read_only_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not read leaves the loop free."""
    heard: Counter[str] = Counter()

    def read(answer: object) -> str:
        heard.update(["read"])
        return text_of(answer)

    monkeypatch.setattr(hints, "CONNECT_SECONDS", patient(5))  # the noise behind the first answer takes time
    monkeypatch.setattr(hints, "PACE_SECONDS", PACE_SECONDS)
    monkeypatch.setattr(hints, "text_of", read)
    async with stand_in("shouting") as bad, running(bad.url, heard):
        await eventually(lambda: heard["run"])
        began, before = time.monotonic(), heard.copy()
        await asyncio.sleep(1)
        paces = 2 + (time.monotonic() - began) / PACE_SECONDS
        assert heard["run"] - before["run"] <= 2 * paces, "twice in each pace at most"
        assert heard["read"] - before["read"] <= (1 + hints.PACE_TEXTS) * paces


async def test_an_endless_word_does_not_fill_the_memory() -> None:
    async with stand_in("endless", polite_to=(*GREETING, b"SUBSCRIBE")) as bad:
        heard: Counter[str] = Counter()
        async with running(bad.url, heard) as (link, metrics):
            await eventually(lambda: link._asking.connected and link._listening.connected)
            before = resident_bytes()
            await link._listening.send("PING")  # the next that it hears is an answer without end
            grown, until = 0, time.monotonic() + 1

            def refused() -> bool:
                nonlocal grown
                grown = max(grown, resident_bytes() - before)
                errors = metrics.registry.get_sample_value("tenure_redis_errors_total")
                return bool(errors) and time.monotonic() > until

            await eventually(refused, interval=0.01)
        assert grown < 30_000_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
