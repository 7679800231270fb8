"""Enqueueing many at once: the Python client, the SQL function, the HTTP API, and the peers' own ways."""

from functools import partial

from tests.bench import tenure
from tests.bench.arena import Arena
from tests.bench.contest import Figures, Turn, contest
from tests.bench.contestant import on_stage
from tests.bench.report import Section, Target, table
from tests.bench.scale import Scale

PYTHON, API = "tenure, Python client", "tenure, HTTP API"


async def bulk(arena: Arena, scale: Scale, rounds: int) -> Section:
    turns: dict[str, Turn] = {
        PYTHON: partial(_ours, arena, "enqueue", scale.enqueued),
        API: partial(_ours, arena, "enqueue_by_api", scale.enqueued),
        "by hand": partial(_peer, arena, "hand", scale.enqueued),
    }
    if arena.peers.known:
        turns["pgqueuer"] = partial(_peer, arena, "pgqueuer", scale.enqueued, batch=500)
        turns["procrastinate"] = partial(_peer, arena, "procrastinate", scale.enqueued)
    results = await contest(turns, rounds)
    return Section(
        "Enqueue in bulk",
        "Many runs of one job with empty payloads, in as few calls as each has; where there is none for "
        "many, in calls for one.",
        table(results, turns, {"enqueue/s": "{:,.0f}", "CPU us": "{:,.1f}"}, PYTHON),
        [
            Target("Python client", results.median(PYTHON, "enqueue/s"), ">=", 40_000, "/s"),
            Target("HTTP API", results.median(API, "enqueue/s"), ">=", 40_000, "/s"),
            Target("Python client, of pgqueuer", results.ratio(PYTHON, "pgqueuer", "enqueue/s"), ">=", 1),
        ],
        results.failed,
    )


async def _ours(arena: Arena, phase: str, count: int) -> Figures:
    async with tenure.prepared(arena) as (_, replica):
        if phase == "enqueue_by_api":
            await replica.phase("open_api")
        cost = await replica.phase(phase, jobs=count)
    # a way that goes in whole calls says for how much
    done = cost.said.get("jobs", count)
    return {"enqueue/s": done / cost.wall, "CPU us": cost.micros(done)}


async def _peer(arena: Arena, name: str, count: int, **given: int) -> Figures:
    async with (
        arena.empty() as url,
        on_stage(
            name, {"url": url, **given}, servers=[arena.postmaster], python=arena.peers.python_of(name)
        ) as one,
    ):
        cost = await one.phase("enqueue", jobs=count)
    return {"enqueue/s": count / cost.wall, "CPU us": cost.micros(count)}
