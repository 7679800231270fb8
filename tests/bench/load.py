"""Load held: the beats of many replicas with many running rows, and the looks of the leader meanwhile."""

import json
import time
from typing import Any
from uuid import UUID

import asyncpg

from supervisor.store import Store
from tests.bench import tables
from tests.bench.arena import Arena
from tests.bench.contest import percentile
from tests.bench.moves import STOP_BOUND, Mover
from tests.bench.report import Section, Target, plain_table
from tests.bench.scale import Scale
from tests.bench.tables import DOMAIN
from tests.support.place import connected


async def load(arena: Arena, scale: Scale, rounds: int) -> Section:
    async with arena.tenure() as urls:
        await tables.prepare(urls, paused=False)
        async with connected(urls.admin) as admin:
            mover = Mover(admin)
            await mover.begin()
            held = await _running(mover, scale)
            before = await admin.fetchval("SELECT pg_current_wal_lsn()")
            beats = []
            for _ in range(max(rounds, scale.beats)):
                for (worker, secret), claims in held.items():
                    beats.append(await mover.beat(worker, claims, secret))
            wal = await admin.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), $1)", before)
            ticks = await _ticks(urls.control, max(rounds, scale.beats))
    p99, tick = percentile(beats, 0.99) * 1000, percentile(ticks, 0.99) * 1000
    rows = [
        ["a beat", f"{percentile(beats, 0.5) * 1000:.1f}", f"{p99:.1f}", f"{float(wal) / len(beats):,.0f}"],
        ["the leader's look", f"{percentile(ticks, 0.5) * 1000:.1f}", f"{tick:.1f}", ""],
    ]
    return Section(
        "Load held",
        f"{scale.replicas} replicas with {scale.running:,} RUNNING rows between them: their beats one after "
        "the other, each naming all its claims, and what a leader reads each tick.",
        plain_table(["", "p50 ms", "p99 ms", "WAL bytes"], rows),
        [Target("beat p99", p99, "<=", 50, "ms"), Target("tick p99", tick, "<=", 200, "ms")],
    )


async def _running(mover: Mover, scale: Scale) -> dict[tuple[str, UUID], list[UUID]]:
    workers = {f"replica-{number}": UUID(int=number + 10) for number in range(scale.replicas)}
    for worker, secret in workers.items():
        await mover.beat(worker, [], secret)
    await mover.enqueue(scale.running)
    each = scale.running // scale.replicas
    held = {}
    for worker, secret in workers.items():
        held[worker, secret] = await _start_some(mover, worker, secret, each)
    return held


async def _start_some(mover: Mover, worker: str, secret: UUID, count: int) -> list[UUID]:
    fetch: Any = mover.connection.fetch
    due = await fetch(
        "SELECT * FROM supervisor.read_due($1, $2, '{}', '{}', $3)", [DOMAIN], [count], STOP_BOUND
    )
    ids, versions = [row["id"] for row in due], [row["version"] for row in due]
    await fetch(
        "SELECT id FROM supervisor.assign($1, $2, $3, $4, '{}', '{}', $5)",
        mover.epoch,
        ids,
        versions,
        [worker] * len(due),
        STOP_BOUND,
    )
    given: list[asyncpg.Record] = await fetch("SELECT * FROM supervisor.assigned($1, $2)", worker, secret)
    claims = [row["claim_id"] for row in given]
    columns = [row["id"] for row in given], [row["version"] for row in given], claims
    await fetch(
        "SELECT id FROM supervisor.start($1, $2, $3, $4, $5, $6)", worker, secret, mover.beat_no, *columns
    )
    return claims


async def _ticks(url: str, count: int) -> list[float]:
    """What a leader reads before its duties, and for each assignment."""
    store = Store(url, name="bench", size=1)
    found = []
    try:
        for _ in range(count):
            began = time.monotonic()
            for row in await store.rows("read_workers"):
                json.loads(row["held_by"])
            await store.rows("read_attention", STOP_BOUND)
            await store.rows("read_due", [DOMAIN], [500], [], [], STOP_BOUND, None)
            found.append(time.monotonic() - began)
    finally:
        await store.close()
    return found
