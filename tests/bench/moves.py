"""The moves of runs by their SQL functions alone, as replicas call them, and what each costs the server.

Without a replica there is nothing else on the server, so that a change of a few per cent can be seen.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg

from schemas import queries
from supervisor.skim import Skim
from tests.bench.tables import DOMAIN, JOB

WORKER: Final = "bench-worker"
SECRET: Final = UUID(int=1)
STOP_BOUND: Final = 30.0
SLOTS: Final = 1000
ENQUEUED_AT_ONCE: Final = 5000


def cpu_micros(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1000


@dataclass
class Mover:
    """One connection, leader and worker in turn; `spent` is the backend's CPU, in microseconds, by call."""

    connection: asyncpg.Connection
    epoch: int = 0
    beat_no: int = 0
    spent: dict[str, float] = field(default_factory=dict)
    slowest: float = 0.0
    due: Skim[int] = field(default_factory=lambda: Skim(0))
    given: Skim[int] = field(default_factory=lambda: Skim(0))

    async def begin(self) -> None:
        self.epoch = await self.connection.fetchval(
            "SELECT epoch FROM supervisor.acquire($1, 3600, 7, 0, 0, 0)", WORKER
        )
        await self.beat()

    async def beat(self, worker: str = WORKER, claims: Sequence[UUID] = (), secret: UUID = SECRET) -> float:
        self.beat_no += 1
        given = (worker, secret, self.beat_no, 0, list(claims), [DOMAIN], SLOTS, STOP_BOUND, False)
        began = time.monotonic()
        await self._call("beat_worker", *given)
        return time.monotonic() - began

    async def enqueue(self, count: int) -> None:
        for first in range(0, count, ENQUEUED_AT_ONCE):
            payloads = ["{}"] * min(ENQUEUED_AT_ONCE, count - first)
            await self._call("enqueue_runs", JOB, payloads, None, None, None)

    async def move(self, count: int, batch: int) -> None:
        """So many runs to their end, in batches."""
        for _ in range(0, count, batch):
            given = await self.assign(batch)
            await self.finish(given, await self.start(given))

    async def assign(self, batch: int) -> Sequence[asyncpg.Record]:
        began = time.monotonic()
        places = [self.due.begin(began)]
        due = await self._call("read_due", [DOMAIN], [batch], [], [], STOP_BOUND, places)
        self.due.ended(began, time.monotonic(), due[-1]["id"] if due else self.due.place)
        ids, versions = [row["id"] for row in due], [row["version"] for row in due]
        workers = [WORKER] * len(due)
        await self._call("assign_runs", self.epoch, ids, versions, workers, [], [], STOP_BOUND)
        began = time.monotonic()
        given = await self._call("read_assigned", WORKER, SECRET, self.given.begin(began))
        self.given.ended(began, time.monotonic(), max((row["id"] for row in given), default=self.given.place))
        return given

    async def start(self, given: Sequence[asyncpg.Record]) -> int:
        columns = [[row[name] for row in given] for name in ("id", "version", "claim_id")]
        started = await self._call("start_runs", WORKER, SECRET, self.beat_no, *columns)
        assert all(row["answer"] == "RECORDED" for row in started)
        return int(started[0]["leader_epoch"])

    async def finish(self, given: Sequence[asyncpg.Record], epoch: int) -> None:
        ids, claims, count = [row["id"] for row in given], [row["claim_id"] for row in given], len(given)
        nothing: list[Any] = [None] * count
        rest = ([epoch] * count, ["SUCCEEDED"] * count, nothing, nothing, nothing, nothing)
        ended = await self._call("finish_runs", WORKER, ids, claims, *rest)
        assert all(row["answer"] == "RECORDED" for row in ended)

    async def _call(self, name: str, *given: Any) -> Sequence[asyncpg.Record]:
        pid = self.connection.get_server_pid()
        before = cpu_micros(pid)
        rows: Sequence[asyncpg.Record] = await self.connection.fetch(queries()[name].sql, *given)
        self.spent[name] = self.spent.get(name, 0.0) + cpu_micros(pid) - before
        return rows
