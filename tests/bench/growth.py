"""What history costs: the same moves on top of more and more ended runs, and with an old snapshot held."""

import time
from dataclasses import dataclass
from typing import Final

import asyncpg

from supervisor.embedded import Urls
from tests.bench import tables
from tests.bench.arena import Arena
from tests.bench.contest import say
from tests.bench.moves import Mover
from tests.bench.report import Section, Target, plain_table
from tests.bench.scale import Scale
from tests.support.place import connected

BATCH: Final = 500
CALLS: Final = ("read_due", "assign_runs", "read_assigned", "start_runs", "finish_runs")
CHUNK: Final = 100_000
# as if each had been enqueued, assigned, started and finished; by the triggers it would take for ever
RUNS: Final = """
INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, state, version, starts,
    max_attempts, assigned_epoch, leader_epoch, assigned_worker_id, claim_id, start_beat_no, not_before,
    created_at, assigned_at, started_at, finished_at, finished_by, executor_stopped_at)
SELECT n, n, d.id, d.domain, '{}', 'SUCCEEDED', 4, 1, 3, 1, 1, 'earlier', gen_random_uuid(), 1, t.at, t.at,
    t.at, t.at, t.at, 'worker', t.at
FROM (SELECT nextval('supervisor.job_run_id') AS n FROM generate_series(1, $1)) s
CROSS JOIN LATERAL (SELECT now() - interval '30 days' + s.n * interval '0.2 seconds' AS at) t
JOIN supervisor.job_definition d ON d.name = $2
"""
HISTORY: Final = """
INSERT INTO supervisor.job_run_history (run_id, root_id, version, from_state, to_state, continuation_state,
    attempt, at, actor)
SELECT r.id, r.root_id, v.version, NULL, v.state, 'NONE', 1, r.created_at, 'bench'
FROM supervisor.job_run r
CROSS JOIN (VALUES (1, 'PENDING'), (2, 'ASSIGNED'), (3, 'RUNNING'), (4, 'SUCCEEDED')) AS v(version, state)
WHERE r.id > $1
"""


@dataclass(frozen=True)
class Measured:
    """Of the moves: the server's CPU a run, wall a run, and what is dead in the table afterwards."""

    micros: float
    wall: float
    dead: int


async def growth(arena: Arena, scale: Scale, rounds: int) -> Section:
    found: dict[str, list[Measured]] = {}
    async with arena.tenure() as urls:
        await tables.prepare(urls, paused=False)
        async with connected(urls.admin) as admin:
            mover = Mover(admin)
            await mover.begin()
            await _move(mover, scale.moved)
            for count in scale.history:
                await _fill(admin, count)
                found[f"{count:,} ended"] = [await _move(mover, scale.moved) for _ in range(rounds)]
                say(f"  {count:,} ended: {_median(found[f'{count:,} ended']):.0f} us")
            found["an old snapshot"] = await _with_snapshot(urls, mover, scale)
    first = _median(next(iter(found.values())))
    ratios = {name: _median(values) / first for name, values in found.items()}
    last = list(found)[-2]
    rows = [
        [name, f"{ratios[name]:.2f}", f"{_median(values):.0f}", f"{values[-1].dead:,}"]
        for name, values in found.items()
    ]
    return Section(
        "Growth",
        "Server CPU of due, assign, take, start and finish, by their functions in batches of 500, on top of "
        f"ended runs with their history; then with a snapshot held open for {scale.old_snapshot_seconds:g} s "
        "while runs go on.",
        plain_table(["", "CPU, of the empty table", "CPU us a run", "dead rows after"], rows),
        [
            Target(f"CPU with {last}, of empty", ratios[last], "<=", 1.15),
            Target(
                "CPU with an old snapshot, of without", ratios["an old snapshot"] / ratios[last], "<=", 1.2
            ),
        ],
    )


def _median(values: list[Measured]) -> float:
    return sorted(value.micros for value in values)[len(values) // 2]


async def _move(mover: Mover, count: int) -> Measured:
    await mover.enqueue(count)
    mover.spent.clear()
    began = time.monotonic()
    await mover.move(count, min(BATCH, count))
    wall = time.monotonic() - began
    await mover.connection.execute("SELECT pg_stat_force_next_flush()")
    dead = await mover.connection.fetchval(
        "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'supervisor.job_run'::regclass"
    )
    return Measured(sum(mover.spent[name] for name in CALLS) / count, wall / count, dead)


async def _fill(admin: asyncpg.Connection, wanted: int) -> None:
    """Up to so many ended runs, with their history; then what autovacuum would have done long ago."""
    await admin.execute("SET session_replication_role = replica")
    have = await admin.fetchval(
        "SELECT count(*) FROM supervisor.job_run WHERE assigned_worker_id = 'earlier'"
    )
    while have < wanted:
        last = await admin.fetchval("SELECT coalesce(max(id), 0) FROM supervisor.job_run")
        count = min(CHUNK, wanted - have)
        await admin.execute(RUNS, count, tables.JOB)
        await admin.execute(HISTORY, last)
        have += count
    await admin.execute("RESET session_replication_role")
    await admin.execute("VACUUM ANALYZE supervisor.job_run")
    await admin.execute("CHECKPOINT")


async def _with_snapshot(urls: Urls, mover: Mover, scale: Scale) -> list[Measured]:
    """A transaction elsewhere that has read something and does not end: nothing that dies is cleared away."""
    found: list[Measured] = []
    async with connected(urls.admin) as elsewhere, elsewhere.transaction(isolation="repeatable_read"):
        await elsewhere.fetchval("SELECT count(*) FROM supervisor.worker")
        until = time.monotonic() + scale.old_snapshot_seconds
        while not found or time.monotonic() < until:
            found.append(await _move(mover, scale.moved))
    # how it has become by the end, not how it began
    return found[-3:]
