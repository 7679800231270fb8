"""Looks at the database as its superuser, past every fault, and says what is so.

After a failover `use` points it to another server. A broken connection is made again at the next question.
Its waits, and the time that a run may take, are longer by the stretch of its world.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import asyncpg

from tests.support import slowness
from tests.support.eventually import eventually
from tests.support.invariants import violations
from tests.support.slowness import patient

Row = Mapping[str, Any]
ENDED = ("SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED")


class Observer:
    def __init__(self, url: str, stretch: float) -> None:
        self._url = url
        self.stretch = stretch
        self.crowding = stretch
        """The greatest stretch that this machine would have asked for meanwhile."""
        self._connection: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()

    def use(self, url: str) -> None:
        self._url = url
        if self._connection is not None:
            self._connection.terminate()

    async def rows(self, sql: str, *args: object) -> list[Row]:
        async with self._turn:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(self._url, timeout=patient(5))
            return [dict(row) for row in await self._connection.fetch(sql, *args, timeout=patient(20))]

    async def value(self, sql: str, *args: object) -> Any:
        rows = await self.rows(sql, *args)
        return next(iter(rows[0].values())) if rows else None

    async def connection(self) -> asyncpg.Connection:
        return await asyncpg.connect(self._url, timeout=patient(5))

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()

    async def until(
        self, condition: Callable[[], Awaitable[Any]], *, within: float, what: str, interval: float = 0.05
    ) -> Any:
        """A condition that cannot be read because the database is away does not hold yet."""

        async def holds() -> Any:
            self.crowding = max(self.crowding, slowness.stretch())
            try:
                return await condition()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
                raise AssertionError(f"{type(error).__name__}: {error}") from error

        return await eventually(holds, timeout=within * self.stretch, what=what, interval=interval)

    # work

    async def define(
        self, name: str, payload: Mapping[str, Any], *, timeout_seconds: float | None = None, **spec: object
    ) -> None:
        spec = {"domain": "command", "payload": payload, "backoff_seconds": 0.1, **spec}
        if timeout_seconds is not None:
            spec["timeout_seconds"] = timeout_seconds * self.stretch
        save = "SELECT FROM supervisor.save_job('chaos', $1, $2::jsonb, true)"
        await self.rows(save, name, json.dumps(spec))

    async def trigger(self, name: str, count: int = 1, payload: Mapping[str, Any] = {}) -> list[int]:
        rows = await self.rows(
            """SELECT e.id FROM generate_series(1, $2::integer) n
               CROSS JOIN LATERAL supervisor.enqueue(
                   $1, $3::jsonb, format('%s-%s-%s', $1::text, txid_current(), n)) e""",
            *(name, count, json.dumps(payload)),
        )
        return [row["id"] for row in rows]

    async def last(self, runs: Sequence[int]) -> list[Row]:
        """The newest row of each root."""
        return await self.rows(
            """SELECT DISTINCT ON (root_id) * FROM supervisor.job_run
               WHERE root_id = ANY ($1::bigint[]) ORDER BY root_id, attempt DESC, id DESC""",
            runs,
        )

    async def attempts(self, root: int) -> list[Row]:
        return await self.rows("SELECT * FROM supervisor.job_run WHERE root_id = $1 ORDER BY id", root)

    async def states(self, runs: Sequence[int]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for row in await self.last(runs):
            counts[row["state"]] = counts.get(row["state"], 0) + 1
        return counts

    async def succeeded(self, runs: Sequence[int]) -> bool:
        return await self.states(runs) == {"SUCCEEDED": len(runs)}

    async def running(self, runs: Sequence[int]) -> bool:
        return await self.states(runs) == {"RUNNING": len(runs)}

    async def on(self, worker_id: str, state: str = "RUNNING") -> list[int]:
        """The runs that a worker has."""
        found = "SELECT id FROM supervisor.job_run WHERE assigned_worker_id = $1 AND state = $2 ORDER BY id"
        return [row["id"] for row in await self.rows(found, worker_id, state)]

    async def open_work(self) -> list[Row]:
        """What has not ended, or is owed another attempt."""
        return await self.rows(
            """SELECT id, root_id, state, attempt, assigned_worker_id FROM supervisor.job_run
               WHERE state <> ALL ($1::text[]) OR (retry_at IS NOT NULL AND next_attempt_id IS NULL)""",
            list(ENDED),
        )

    # the leader

    async def epoch(self) -> int:
        return int(await self.value("SELECT epoch FROM supervisor.leader_epoch"))

    async def holder(self) -> str | None:
        """The worker that leads now."""
        live = "SELECT holder FROM supervisor.leader_lease WHERE expires_at > clock_timestamp()"
        return await self.value(live) or None

    async def led_after(self, epoch: int, within: float) -> int:
        """Wait for a later epoch."""

        async def later() -> int:
            now = await self.epoch()
            assert now > epoch, f"epoch {now}"
            return now

        reached: int = await self.until(later, within=within, what=f"an epoch after {epoch}")
        return reached

    async def violations(self) -> list[str]:
        return await violations(self.rows)

    async def report(self) -> str:
        """What the runs went through that did not simply succeed."""
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            rows = await self.rows(
                """SELECT * FROM supervisor.job_run_history WHERE root_id IN (
                       SELECT root_id FROM supervisor.job_run WHERE state <> 'SUCCEEDED' OR attempt > 1)
                   ORDER BY root_id, at, version LIMIT 60"""
            )
            epochs = await self.rows("SELECT * FROM supervisor.tenure_log ORDER BY id")
            return "\n".join([*map(_moved, rows), *(f"{row['at']} {dict(row)}" for row in epochs)])
        return "the database does not answer"


def _moved(row: Row) -> str:
    return (
        f"{row['at']:%H:%M:%S.%f} root {row['root_id']} run {row['run_id']} v{row['version']} "
        f"{row['from_state']} -> {row['to_state']} {row['continuation_state']} attempt {row['attempt']} "
        f"{(row['worker_id'] or '')[:8]} epoch {row['leader_epoch']} {row['actor']}: {row['reason']}"
    )
