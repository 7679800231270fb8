"""A database with a leader, workers and runs in chosen states, without a process: the calls of a replica."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

import asyncpg

from supervisor.embedded import Urls
from tests.support.sessions import borrow, give_back


def secret_of(worker: str) -> UUID:
    """What this worker alone knows."""
    return uuid5(NAMESPACE_OID, worker)


@dataclass
class Scene:
    """Acts as the superuser, through the same functions as the replicas."""

    connection: asyncpg.Connection
    epoch: int = 0
    beats: int = 0

    @classmethod
    async def open(cls, urls: Urls) -> "Scene":
        return cls(await borrow(urls.admin))

    async def close(self) -> None:
        await give_back(self.connection)

    async def lead(self, worker: str = "w1", lease_seconds: float = 60) -> int:
        self.epoch = await self.connection.fetchval(
            "SELECT epoch FROM supervisor.acquire($1, $2, 7, 0, 0, 0)", worker, lease_seconds
        )
        return self.epoch

    async def beat(
        self, worker: str = "w1", *, slots: int = 4, stop_bound: float = 30, draining: bool = False
    ) -> None:
        claims = await self.connection.fetch(
            "SELECT claim_id FROM supervisor.job_run WHERE assigned_worker_id = $1 AND claim_id IS NOT NULL",
            worker,
        )
        self.beats += 1
        await self.connection.execute(
            "SELECT supervisor.beat($1, $2, $3, 0, $4, '{command}', $5, $6, $7)",
            worker,
            secret_of(worker),
            self.beats,
            [row["claim_id"] for row in claims],
            slots,
            stop_bound,
            draining,
        )

    async def leave(self, worker: str) -> None:
        await self.value("SELECT supervisor.leave($1, $2)", worker, secret_of(worker))

    async def job(self, name: str = "job", **spec: Any) -> None:
        wanted = {"domain": "command", "payload": {"argv": ["true"]}, **spec}
        await self.connection.execute(
            "SELECT supervisor.save_job('test', $1, $2::text::jsonb, true)", name, json.dumps(wanted)
        )

    async def enqueue(self, name: str = "job", **more: Any) -> int:
        return int(
            await self.connection.fetchval(
                "SELECT id FROM supervisor.enqueue($1, '{}', NULL, $2, $3)",
                name,
                more.get("not_before"),
                more.get("priority"),
            )
        )

    async def assign(self, run: int, worker: str = "w1") -> None:
        version = await self.value("SELECT version FROM supervisor.job_run WHERE id = $1", run)
        given = await self.connection.fetch(
            "SELECT id FROM supervisor.assign($1, $2, $3, $4, '{}', '{}', 7)",
            self.epoch,
            [run],
            [version],
            [worker],
        )
        assert given, f"run {run} was not assigned"

    async def start(self, run: int) -> None:
        row = await self._row(run)
        answer = await self.value(
            "SELECT answer FROM supervisor.start($1, $2, $3, $4, $5, $6)",
            row["assigned_worker_id"],
            secret_of(row["assigned_worker_id"]),
            self.beats,
            [run],
            [row["version"]],
            [row["claim_id"]],
        )
        assert answer == "RECORDED"

    async def finish(
        self, run: int, state: str = "SUCCEEDED", error: str | None = None, delay: float | None = None
    ) -> None:
        row = await self._row(run)
        answer = await self.value(
            "SELECT answer FROM supervisor.finish($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            row["assigned_worker_id"],
            [run],
            [row["claim_id"]],
            [row["leader_epoch"]],
            [state],
            [None],
            [error],
            [error and "it broke"],
            [delay],
        )
        assert answer == "RECORDED"

    async def run_to(self, state: str, name: str = "job", worker: str = "w1") -> int:
        """A new run, moved on until it is in this state."""
        run = await self.enqueue(name)
        if state == "PENDING":
            return run
        await self.assign(run, worker)
        if state == "ASSIGNED":
            return run
        if state == "ORPHANED":
            row = await self._row(run)
            await self.value("SELECT supervisor.release($1, $2, $3)", worker, [run], [row["claim_id"]])
            return run
        await self.start(run)
        if state == "CONFIRMING":
            row = await self._row(run)
            await self.value("SELECT supervisor.confirm_self($1, $2, 30)", worker, [row["claim_id"]])
        elif state != "RUNNING":
            await self.finish(run, state, None if state == "SUCCEEDED" else "EXIT_1")
        return run

    async def next_attempts(self) -> list[int]:
        rows = await self.connection.fetch("SELECT id FROM supervisor.next_attempts($1, 100)", self.epoch)
        return [row["id"] for row in rows]

    async def force(self, sql: str, *args: Any) -> None:
        """Change what the guards forbid, to see whether it is noticed."""
        async with self.connection.transaction():
            await self.connection.execute("SET LOCAL session_replication_role = replica")
            await self.connection.execute(sql, *args)

    async def value(self, sql: str, *args: Any) -> Any:
        return await self.connection.fetchval(sql, *args)

    async def _row(self, run: int) -> asyncpg.Record:
        row = await self.connection.fetchrow("SELECT * FROM supervisor.job_run WHERE id = $1", run)
        assert row is not None
        return row
