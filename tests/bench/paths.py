"""The two ways work goes: rows of a domain's table by their leases, and runs by the leader's hand."""

from functools import partial
from typing import Any, Final

from tests.bench import tables, tenure
from tests.bench.arena import Arena
from tests.bench.contest import Figures, Results, Turn, contest
from tests.bench.contestant import Cost, on_stage
from tests.bench.report import Section, Target, table
from tests.bench.scale import Scale

OURS: Final = "tenure"
SLOW: Final = ("procrastinate", "dbos", "absurd", "arq", "taskiq")
FIGURES: Final = {"work/s": "{:,.0f}", "CPU us": "{:,.0f}", "of it own": "{:,.0f}", "enqueue/s": "{:,.0f}"}


async def lease_path(arena: Arena, scale: Scale, rounds: int) -> Section:
    turns: dict[str, Turn] = {OURS: partial(our_rows, arena, scale.rows)}
    turns["by hand"] = partial(staged, arena, "hand", scale.rows)
    if arena.peers.known:
        for batch in (500, 10):
            turns[f"pgqueuer ({batch})"] = partial(staged, arena, "pgqueuer", scale.rows, batch=batch)
    results = await contest(turns, rounds)
    return Section(
        "Lease path",
        "Claim, an empty handler, finish on a domain's table, through a replica's claim loop; by hand: one "
        "claim and one finish statement for each 100 rows of a bare table; pgqueuer with its batch in "
        "parentheses.",
        table(results, turns, FIGURES, OURS),
        [
            Target("CPU a row", results.median(OURS, "CPU us"), "<=", 50, "us"),
            Target("wall, of by hand", results.ratio(OURS, "by hand", "work/s"), ">=", 0.6),
            Target("wall, of pgqueuer (500)", results.ratio(OURS, "pgqueuer (500)", "work/s"), ">=", 1.6),
        ],
        results.failed,
    )


async def run_path(arena: Arena, scale: Scale, rounds: int) -> Section:
    turns: dict[str, Turn] = {OURS: partial(our_runs, arena, scale.runs)}
    if arena.peers.known:
        turns["pgqueuer (500)"] = partial(staged, arena, "pgqueuer", scale.runs, batch=500)
        turns |= {name: partial(staged, arena, name, scale.peer_runs) for name in SLOW}
    results = await contest(turns, rounds)
    return Section(
        "Full run path",
        "Enqueue, fenced assignment, start, an empty handler, finish, each move guarded and with its row of "
        "history, in one replica that leads and works. `work` is all but the enqueueing; `CPU us` is both.",
        table(results, turns, FIGURES, OURS),
        [
            Target("CPU a run", results.median(OURS, "CPU us"), "<=", 95, "us"),
            Target("CPU, of pgqueuer (500)", results.ratio(OURS, "pgqueuer (500)", "CPU us"), "<=", 1),
            Target("wall, of pgqueuer (500)", results.ratio(OURS, "pgqueuer (500)", "work/s"), ">=", 1),
            *_ahead_of(results, "procrastinate", "dbos", "absurd"),
        ],
        results.failed,
    )


def _ahead_of(results: Results, *names: str) -> list[Target]:
    return [Target(f"wall, of {name}", results.ratio(OURS, name, "work/s"), ">=", 10) for name in names]


async def our_rows(arena: Arena, count: int) -> Figures:
    async with tenure.prepared(arena) as (urls, replica):
        await tables.add_rows(urls, count)
        return figures(count, await replica.phase("rows", jobs=count))


async def our_runs(arena: Arena, count: int) -> Figures:
    async with tenure.prepared(arena) as (_, replica):
        enqueued = await replica.phase("enqueue", jobs=count)
        return figures(count, await replica.phase("work", jobs=count), enqueued)


async def staged(arena: Arena, name: str, count: int, **given: Any) -> Figures:
    """Somebody else's whole path."""
    servers = [arena.postmaster, *([arena.redis_pid] if arena.redis is not None else [])]
    async with arena.empty() as url:
        asked = {"url": url, "redis": arena.redis.url if arena.redis else None, **given}
        async with on_stage(name, asked, servers=servers, python=arena.peers.python_of(name)) as contestant:
            enqueued = await contestant.phase("enqueue", jobs=count)
            worked = await contestant.phase("work", jobs=count)
    return figures(count, worked, None if name == "hand" else enqueued)


def figures(count: int, worked: Cost, enqueued: Cost | None = None) -> Figures:
    found = {
        "work/s": count / worked.wall,
        "CPU us": worked.micros(count),
        "of it own": worked.own / count * 1e6,
    }
    if enqueued is not None:
        found["CPU us"] += enqueued.micros(count)
        found["of it own"] += enqueued.own / count * 1e6
        found["enqueue/s"] = count / enqueued.wall
        found["enqueue CPU us"] = enqueued.micros(count)
    return found
