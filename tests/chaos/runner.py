"""Plays scenarios in a world and says what came of it.

Several scenarios with the same topology can share a world, one after another: one start, one history, one
verdict, with the expectations of all. A world with a guard taken out is never shared.
"""

import asyncio
import json
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from supervisor.clock import boottime
from tests.chaos import judge
from tests.chaos.dump import dump
from tests.chaos.executions import executions, overlaps
from tests.chaos.journal import read_lines
from tests.chaos.judge import Verdict, table
from tests.chaos.layer import Layer, NotHere
from tests.chaos.load import Worker
from tests.chaos.place import Place
from tests.chaos.scenario import Inconclusive, Scenario
from tests.chaos.template import Template, template
from tests.chaos.world import World
from tests.support.replicas import REASSIGN_AFTER, C, D, H, K, L, R, S
from tests.support.slowness import patient

TIMINGS: Final = {
    "L": L,
    "R": R,
    "retry": 0.5,
    "H": H,
    "C": C,
    "S": S,
    "k": K,
    "D": D,
    "reassign_after": REASSIGN_AFTER,
}
KEPT: Final = Path(tempfile.gettempdir(), "tenure-chaos-kept")


@dataclass
class Result:
    name: str
    title: str
    seed: int
    layer: str
    verdict: Verdict
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    schedule: list[str] = field(default_factory=list)
    directory: Path | None = None

    @property
    def fine(self) -> bool:
        return self.verdict.word in (judge.HOLDS, judge.NOT_RUN)

    @property
    def replay(self) -> str:
        return f"python -m tests.chaos --scenario {self.name} --seed {self.seed} --layer {self.layer}"

    def line(self) -> str:
        figures = " ".join(f"{name}={value:g}" for name, value in self.figures.items())
        head = f"{self.name:<8} {self.verdict.word:<12} seed {self.seed:<6} {self.seconds:6.1f} s"
        return f"{head}  {figures}  {self.title}"

    def explanation(self) -> str:
        lines = [f"  {text}" for text in self.verdict.findings]
        if not self.fine:
            lines += [f"  {text}" for text in self.schedule]
            lines += [f"  history: {self.directory}", f"  again:   {self.replay}"]
        return "\n".join(lines)


async def play(
    scenarios: Sequence[Scenario], seed: int, layer: type[Layer], keep: Path | None = None
) -> Result:
    """The scenarios in one world; the history is kept where asked for, and in KEPT when it does not hold."""
    name, title = "+".join(one.id for one in scenarios), "; ".join(one.title for one in scenarios)
    result = Result(name, title, seed, layer.name, Verdict(judge.NOT_RUN))
    began = time.monotonic()
    place = Place()
    try:
        _require(scenarios, layer)
        made = await asyncio.to_thread(template)
        await _play(scenarios, result, layer(), place, made)
    except NotHere as reason:
        result.verdict = Verdict(judge.NOT_RUN, [str(reason)])
    finally:
        result.seconds = time.monotonic() - began
        _keep(result, place, keep)
        place.close()
    return result


def _require(scenarios: Sequence[Scenario], layer: type[Layer]) -> None:
    lacking = {need for one in scenarios for need in one.needs} - layer.can
    if lacking:
        raise NotHere(f"{layer.name} cannot do: {', '.join(sorted(lacking))}")


async def _play(
    scenarios: Sequence[Scenario], result: Result, layer: Layer, place: Place, made: Template
) -> None:
    first = scenarios[0]
    world = World(first.topology, layer, place, first.guards_off)
    load = Worker(first.load, world.see, random.Random(f"load {result.seed}"))  # noqa: S311  replayable
    found: list[str] = []
    try:
        await world.make(made)
        if world.stretch > 1:
            world.figure("stretch", world.stretch)
        await world.leader()
        await load.start()
        found += await _hurt(world, scenarios, result.seed)
        await load.stop()
        await world.heal()
        found += await _settle(world, scenarios)
        found += _true_of(world, await world.see.violations())
        await _record(world, scenarios, result)
    except NotHere:
        raise
    except Exception as error:  # noqa: BLE001  whatever broke, the world is closed and its history kept
        found.append(f"{type(error).__name__}: {error}\n{await world.report()}")
    finally:
        try:
            await load.abandon()  # the next world must not be fed by this one
            world.figures |= figures_of(world.history)
            result.figures = world.figures
            result.schedule = schedule_of(world.history)
        finally:
            await world.close()
    result.verdict = _verdict(world.history, scenarios, found, world.doubts)


async def _hurt(world: World, scenarios: Sequence[Scenario], seed: int) -> list[str]:
    """Each scenario's own part; what it asserted and did not hold."""
    for scenario in scenarios:
        chance = random.Random(f"{scenario.id} {seed}")  # noqa: S311  replayable
        seconds = patient(scenario.timeout * world.stretch)
        try:
            async with asyncio.timeout(seconds):
                await scenario.play(world, chance)
        except Inconclusive as reason:
            world.doubts.append(f"{scenario.id}: {reason}")
        except AssertionError as error:
            return [f"{scenario.id}: {error}\n{await world.report()}"]
        except TimeoutError:
            return [f"{scenario.id}: not over after {seconds:g} s\n{await world.report()}"]
    return []


def _true_of(world: World, violations: list[str]) -> list[str]:
    """Who led when, and which attempt came first, is told by the database's clock unless that was set."""
    faults = read_lines(world.history / "faults.jsonl")
    clock_set = any(one["fault"].startswith("clock") and one["target"] in world.postgres for one in faults)
    return [text for text in violations if not (clock_set and text.startswith(("I2", "I3")))]


async def _settle(world: World, scenarios: Sequence[Scenario]) -> list[str]:
    """After the heal every run ends in time."""
    bound = max(one.bounds.terminal for one in scenarios)

    async def over() -> bool:
        return not await world.see.open_work()

    try:
        await world.see.until(over, within=bound, what="every run to end", interval=0.1)
    except AssertionError as error:
        return [f"I6 {error}: {await world.see.open_work()}\n{await world.report()}"]
    world.figure("settled", boottime() - world.healed_at)
    return []


async def _record(world: World, scenarios: Sequence[Scenario], result: Result) -> None:
    await dump(world.urls.admin, world.history)
    lost = [server for host, server in world.postgres.items() if host != world.primary]
    if world.primary != "pg1":
        for server in lost:
            if not server.alive:
                await server.start()
            await dump(server.urls.admin, world.history, "database-lost")
    facts = {
        "name": result.name,
        "seed": result.seed,
        "layer": result.layer,
        "stretch": world.stretch,
        "timings": {name: seconds * world.stretch for name, seconds in TIMINGS.items()},
        "guards_off": world.guards_off,
        "healed_at": world.healed_at,
        "ended_at": boottime(),
        "bounds": {
            "leader_gap": max(one.bounds.leader_gap for one in scenarios) * world.see.crowding,
            "terminal": max(one.bounds.terminal for one in scenarios) * world.see.crowding,
        },
        "async_failover": any(one.async_failover for one in scenarios),
        "expects": sorted({name for one in scenarios for name in one.expects}),
        "schedules": [
            {name: row[name] for name in ("cron", "timezone", "missed")} | {"job": row["name"]}
            for row in table(world.history, "job_definition")
            if row["cron"] is not None
        ],
    }
    (world.history / "scenario.json").write_text(json.dumps(facts, indent=1))


def schedule_of(history: Path) -> list[str]:
    """What was done, in seconds since the first fault."""
    lines = read_lines(history / "faults.jsonl")
    return [
        f"{line['t'] - lines[0]['t']:6.1f} s  {line['phase']:<5} {line['fault']} {line['args']}"
        for line in lines
    ]


def figures_of(history: Path) -> dict[str, float]:
    """What every history has numbers for."""
    runs = table(history, "job_run")
    return {
        "runs": len({row["root_id"] for row in runs}),
        "executions": len(executions(history / "effects.jsonl")),
        "reruns": sum(1 for row in runs if row["retry_of_id"] is not None),
        "tenures": sum(1 for row in table(history, "tenure_log") if row["what"] == "ACQUIRED"),
        "late": len(table(history, "late_finish")),
        "overlaps": len(overlaps(history / "effects.jsonl")),
    }


def _verdict(
    history: Path, scenarios: Sequence[Scenario], found: Sequence[str], doubts: Sequence[str]
) -> Verdict:
    verdict = judge.judge(history, found)
    if doubts and verdict.word != judge.BROKEN:
        return Verdict(judge.INCONCLUSIVE, [*doubts, *verdict.findings], verdict.figures)
    control = scenarios[0]
    if not control.reports:
        return verdict
    seen = [text for text in verdict.findings if text.startswith(control.reports)]
    if verdict.word == judge.BROKEN and seen:
        return Verdict(judge.HOLDS, [f"reported, as it must be: {seen[0]}"])
    rules = f"rules taken out: {', '.join(control.guards_off) or 'none'}"
    complaint = f"nothing that begins with {' or '.join(control.reports)} was reported ({rules})"
    return Verdict(judge.BROKEN, [complaint, *verdict.findings])


def _keep(result: Result, place: Place, keep: Path | None) -> None:
    history = place.path / "history"
    if (keep is None and result.fine) or not history.exists():
        return
    target = (keep or KEPT) / f"{result.name}-{result.seed}-{int(time.time())}"
    shutil.copytree(history, target, dirs_exist_ok=True)
    for log in [*place.path.glob("*.log"), *place.path.glob("*/log")]:
        shutil.copy(log, target / f"{log.parent.name if log.name == 'log' else log.stem}.log")
    result.directory = target


def as_json(result: Result) -> dict[str, Any]:
    return {**vars(result), "verdict": vars(result.verdict), "directory": str(result.directory)}
