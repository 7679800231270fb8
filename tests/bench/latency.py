"""How long a run waits: from enqueue to its handler at a steady rate, and after its scheduled instant."""

from functools import partial
from typing import Final

from supervisor.embedded import Urls
from tests.bench import tables, tenure
from tests.bench.arena import Arena
from tests.bench.contest import Figures, Turn, contest, percentile
from tests.bench.contestant import on_stage
from tests.bench.paths import OURS
from tests.bench.report import Section, Target, table
from tests.bench.scale import Scale
from tests.support.place import connected

FIGURES: Final = {"p50 ms": "{:.1f}", "p99 ms": "{:.1f}"}


async def latency(arena: Arena, scale: Scale, rounds: int) -> Section:
    turns: dict[str, Turn] = {OURS: partial(_ours, arena, scale)}
    if arena.peers.known:
        turns |= {name: partial(_peer, arena, scale, name) for name in ("pgqueuer", "procrastinate")}
    results = await contest(turns, rounds)
    return Section(
        "Pick-up latency",
        f"From the call that enqueues to the handler, {scale.rate:g} runs a second; a run of this project "
        "goes by the leader.",
        table(results, turns, FIGURES, OURS),
        [
            Target("p50, of pgqueuer", results.ratio(OURS, "pgqueuer", "p50 ms"), "<=", 2),
            Target("p99, of pgqueuer", results.ratio(OURS, "pgqueuer", "p99 ms"), "<=", 1),
        ],
        results.failed,
    )


async def lateness(arena: Arena, scale: Scale, rounds: int) -> Section:
    results = await contest({OURS: partial(_scheduled, arena, scale.definitions)}, rounds)
    return Section(
        "Schedule lateness",
        f"{scale.definitions} definitions with one and the same instant: from it to the start of each run.",
        table(results, [OURS], {"p50 s": "{:.2f}", "p99 s": "{:.2f}"}, OURS),
        [Target("p99", results.median(OURS, "p99 s"), "<=", 1, "s")],
        results.failed,
    )


def _waits(values: list[float], unit: float, name: str) -> Figures:
    return {
        f"{part} {name}": percentile(values, share) * unit for part, share in (("p50", 0.5), ("p99", 0.99))
    }


async def _ours(arena: Arena, scale: Scale) -> Figures:
    async with tenure.prepared(arena, paused=False) as (_, replica):
        cost = await replica.phase("latency", rate=scale.rate, seconds=scale.latency_seconds)
    return _waits(cost.said["waits"], 1000, "ms")


async def _peer(arena: Arena, scale: Scale, name: str) -> Figures:
    async with arena.empty() as url:
        given, python = {"url": url, "batch": 10}, arena.peers.python_of(name)
        async with on_stage(name, given, servers=[arena.postmaster], python=python) as peer:
            cost = await peer.phase("latency", rate=scale.rate, seconds=scale.latency_seconds)
    return _waits(cost.said["waits"], 1000, "ms")


async def _scheduled(arena: Arena, definitions: int) -> Figures:
    async with tenure.prepared(arena, paused=False) as (urls, replica):
        due = await make_due(urls, definitions)
        cost = await replica.phase("lateness", jobs=definitions, due=due)
    return _waits(cost.said["waits"], 1, "s")


async def make_due(urls: Urls, definitions: int) -> float:
    """Definitions whose last minute becomes due in a second; when that is. Nobody waits for the next here."""
    async with connected(urls.admin) as admin:
        for number in range(definitions):
            spec = {"cron": "* * * * *", "timezone": "UTC", "missed": "latest"}
            await tables.save_job(admin, f"job-{number}", **spec)
        due: float = await admin.fetchval(
            "UPDATE supervisor.job_definition SET "
            "fired_until = date_trunc('minute', now()) - interval '1 s', "
            "next_fire_at = now() + interval '1 s' "
            "WHERE cron IS NOT NULL RETURNING extract(epoch FROM next_fire_at)::float8"
        )
    return due
