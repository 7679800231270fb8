"""Runs in one hand: each with its own claim, names in the log, verdict and stop."""

import json
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace
from io import StringIO
from typing import Any, cast
from uuid import UUID, uuid4

import anyio
import anyio.lowlevel
import pytest
import structlog

from supervisor import logs, verdict
from supervisor.actor import Actor, Claim, Tools
from supervisor.claims import Claims, Held
from supervisor.clock import boottime
from supervisor.config import Timings
from supervisor.execution import Execution, Started
from supervisor.finisher import Ending, Finisher
from supervisor.metrics import Metrics
from supervisor.outcome import Done, Outcome
from supervisor.stoppable import Stoppable
from tests.support.stores import place_of
from tests.unit.test_runner_pools import NoTimer


class Kept:
    def __init__(self) -> None:
        self.endings: list[Ending] = []

    def add(self, ending: Ending) -> None:
        self.endings.append(ending)


class World:
    def __init__(self, handle: Any) -> None:
        self.claims = Claims(Timings(), NoTimer())
        self.kept = Kept()
        actors = {"test": Actor(domain="test", handle=handle)}
        self.execution = Execution(
            place_of(cast("Any", None)), actors, 1.0, self.claims, cast("Finisher", self.kept), Metrics()
        )
        self.stops: dict[int, Any] = {}

    def begun(self, run_id: int, payload: str = "{}") -> Started:
        held: Held = self.claims.hold(uuid4(), run_id, "test")
        row = {"id": run_id, "root_id": run_id, "attempt": 1, "leader_epoch": 7, "domain": "test",
               "action": None, "payload": payload, "timeout_seconds": None}  # fmt: skip
        started = Started(cast("Any", row), held)
        self.stops[run_id] = started.stop
        started.in_time = self.claims.begin(held, boottime(), boottime(), started.stop)
        return started

    async def carry_out(self, runs: Sequence[int]) -> list[tuple[int, str]]:
        async with anyio.create_task_group() as group:
            with Stoppable() as hand:
                for run_id in runs:
                    await self.execution.carry_out(group, self.begun(run_id), hand)
        return [(ending.run_id, ending.verdict.state) for ending in self.kept.endings]


def test_a_claim_is_a_value() -> None:
    claim = Claim(1, 2, 3, 4, UUID(int=5), "test", None, {"a": 1}, None)
    assert claim == Claim(1, 2, 3, 4, UUID(int=5), "test", None, {"a": 1}, None, key=None)
    assert replace(claim, attempt=9).attempt == 9
    assert replace(claim, attempt=9) != claim
    assert "attempt=3" in repr(claim)
    with pytest.raises(FrozenInstanceError):
        claim.attempt = 4  # type: ignore[misc]


async def test_a_late_stop_of_an_ended_run_leaves_the_next_alone() -> None:
    async def handle(claim: Claim, _tools: Tools) -> Outcome:
        for run_id, stop in world.stops.items():
            if run_id != claim.run_id:
                stop()
        await anyio.lowlevel.checkpoint()
        return Done()

    world = World(handle)
    assert await world.carry_out(range(5)) == [(run_id, "SUCCEEDED") for run_id in range(5)]
    assert world.kept.endings[0].verdict is verdict.SUCCEEDED


async def test_a_revoked_run_is_lost_and_the_next_is_not() -> None:
    async def handle(claim: Claim, _tools: Tools) -> Outcome:
        if claim.run_id == 1:
            world.claims.answered([claim.claim_id], (), (), boottime(), boottime())
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()
        return Done()

    world = World(handle)
    found = await world.carry_out([0, 1, 2])
    assert found == [(0, "SUCCEEDED"), (1, "TIMED_OUT"), (2, "SUCCEEDED")]
    assert world.kept.endings[1].verdict is verdict.LOST
    assert world.claims.executing() == []


async def test_a_run_stopped_before_a_hand_took_it_is_never_executed() -> None:
    handled: list[int] = []

    async def handle(claim: Claim, _tools: Tools) -> Outcome:
        handled.append(claim.run_id)
        return Done()

    world = World(handle)
    async with anyio.create_task_group() as group:
        started = world.begun(1)
        world.claims.stop_all("DRAIN")
        with Stoppable() as hand:
            await world.execution.carry_out(group, started, hand)
            await world.execution.carry_out(group, world.begun(2), hand)
    assert handled == [2]
    assert [ending.verdict.error_code for ending in world.kept.endings] == ["DRAINED", None]


async def test_a_payload_that_cannot_be_read_ends_its_run_and_no_other() -> None:
    """The database keeps JSON of a depth that Python does not read, and whoever may enqueue can give it."""

    async def handle(_claim: Claim, _tools: Tools) -> Outcome:
        await anyio.lowlevel.checkpoint()
        return Done()

    world = World(handle)
    async with anyio.create_task_group() as group:
        with Stoppable() as hand:
            deep = f'{{"deep": {"[" * 3000}{"]" * 3000}}}'
            await world.execution.carry_out(group, world.begun(1, deep), hand)
            await world.execution.carry_out(group, world.begun(2), hand)
    assert [ending.verdict for ending in world.kept.endings] == [verdict.UNREADABLE, verdict.SUCCEEDED]
    assert world.claims.executing() == []


async def test_every_line_of_a_run_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(claim: Claim, _tools: Tools) -> Outcome:
        async def begun_by_it() -> None:
            log.info("in a task of it")

        log.info("in it")
        log.info("with its own", run="another")
        async with anyio.create_task_group() as group:
            group.start_soon(begun_by_it)
        return Done()

    lines = StringIO()
    processors: list[structlog.typing.Processor] = [
        logs.name_run,
        structlog.contextvars.merge_contextvars,
        structlog.processors.JSONRenderer(),
    ]
    log = structlog.wrap_logger(structlog.PrintLogger(lines), processors=processors)
    world = World(handle)
    monkeypatch.setattr(world.execution, "_log", log)
    with structlog.contextvars.bound_contextvars(epoch=1):
        await world.carry_out([3])
        log.info("after it")
    written = [json.loads(line) for line in lines.getvalue().splitlines()]
    claim = str(world.kept.endings[0].claim_id)
    named = {"run": 3, "claim": claim, "epoch": 7}
    assert [line.items() >= named.items() for line in written] == [True, False, True, True, False]
    assert written[1]["run"] == "another"
    assert "run" not in written[-1]
    assert written[-1]["epoch"] == 1
