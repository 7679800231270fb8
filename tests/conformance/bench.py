"""A contract's table in a database of the tests, and its statements as each role calls them.

Every call has a session that remembers nothing: no statement may need anything of an earlier one.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from actors import ROSTER
from supervisor.embedded import Urls
from supervisor.lease import Lease, Write
from supervisor.lease_sql import Statement, Statements
from tests.conformance.contracts import CONTRACTS, Contract
from tests.support import sessions

DOMAIN = "example"
OUTCOMES = ("done", "retry", "cancel", "snooze")
REASON = {"tenure_code": "CODE", "tenure_message": "message", "tenure_after": 60.0}

Row = Mapping[str, Any] | asyncpg.Record
Connection = asyncpg.Connection


@dataclass(frozen=True)
class Taken:
    """A claimed row."""

    key: tuple[Any, ...]
    token: UUID


@dataclass(frozen=True)
class Bench:
    contract: Contract
    sql: Statements
    urls: Urls

    @property
    def lease(self) -> Lease:
        return self.contract.lease

    def connected(self, login: str, **options: str) -> AbstractAsyncContextManager[Connection]:
        return sessions.connected(getattr(self.urls, login), **options)

    async def insert(self, *numbers: int) -> None:
        async with self.connected("admin") as admin:
            await admin.executemany(self.contract.insert, [(number,) for number in numbers])

    async def claim(self, owner: str, rows: int, connection: Connection | None = None) -> list[Taken]:
        return self.taken(await self._as_worker(connection, self.sql.claim, owner, rows, DOMAIN))

    def taken(self, rows: Sequence[Row]) -> list[Taken]:
        width = len(self.lease.key)
        found = [tuple(row.values())[1:] for row in rows]
        return [Taken(values[:width], values[width]) for values in found if values[width] is not None]

    async def claim_one(self, owner: str) -> Taken:
        (taken,) = await self.claim(owner, 1)
        return taken

    async def beat(self, owner: str, *rows: Taken) -> list[UUID]:
        answer = await self._as_worker(None, self.sql.beat, owner, *self.arrays(self.sql.beat, rows))
        return [row["token"] for row in answer]

    async def finish(
        self, owner: str, *rows: Taken, how: str = "done", values: Mapping[str, Any] | None = None
    ) -> list[str]:
        statement = self.sql.finish[how]
        arguments = self.arrays(statement, rows, {**REASON, **self.contract.gives, **(values or {})})
        answers = {
            row["token"]: row["answer"] for row in await self._as_worker(None, statement, owner, *arguments)
        }
        return [answers[row.token] for row in rows]

    async def release(self, owner: str, *rows: Taken) -> list[UUID]:
        assert self.sql.release is not None
        answer = await self._as_worker(None, self.sql.release, owner, *self.arrays(self.sql.release, rows))
        return [row["token"] for row in answer]

    async def recover(self, rows: int = 100) -> int:
        async with self.connected("control") as control:
            return len(await control.fetch(self.sql.recover.sql, rows))

    async def row(self, taken: Taken) -> dict[str, Any]:
        where = " AND ".join(f"{name} = ${number}" for number, name in enumerate(self.lease.key, start=1))
        async with self.connected("admin") as admin:
            found = await admin.fetchrow(f"SELECT * FROM {self.lease.table} WHERE {where}", *taken.key)
        assert found is not None
        return dict(found)

    async def expire(self, connection: Connection | None = None, *, at: str | None = "now()") -> None:
        """Let the lease of every running row be over at an instant (SQL), NULL = never said."""
        lease = self.lease
        value = "NULL" if at is None else at
        column = lease.expiry or lease.heartbeat
        if lease.expiry is None and at is not None:
            value = f"({at}) - interval '{lease.lease_seconds:g} seconds'"
        change = f"UPDATE {lease.table} SET {column} = {value} WHERE {lease.state} = '{lease.running}'"
        if connection is not None:
            await connection.execute(change)
            return
        async with self.connected("admin", session_replication_role="replica") as admin:
            await admin.execute(change)

    async def make_claimable(self) -> None:
        """What an operator or a sweep does with rows that were set aside."""
        lease = self.lease
        changes = [f"{name} = now()" for name, write in lease.stale.writes.items() if write is Write.DUE]
        if lease.stale.state not in {None, *lease.claimable}:
            changes.append(f"{lease.state} = '{lease.claimable[0]}'")
        if changes:
            async with self.connected("admin", session_replication_role="replica") as admin:
                where = f"{lease.state} = '{lease.stale.state}'"
                await admin.execute(f"UPDATE {lease.table} SET {', '.join(changes)} WHERE {where}")

    async def retire(self, taken: Taken) -> None:
        """Out of the way of the next row."""
        lease = self.lease
        where = " AND ".join(f"{name} = ${number}" for number, name in enumerate(lease.key, start=1))
        async with self.connected("admin", session_replication_role="replica") as admin:
            await admin.execute(f"DELETE FROM {lease.table} WHERE {where}", *taken.key)

    async def place(self, taken: Taken) -> int:
        """Where the row stands in the claim order of the whole table."""
        order = ", ".join(self.lease.order)
        keys = ", ".join(self.lease.key)
        async with self.connected("admin") as admin:
            rows = await admin.fetch(f"SELECT {keys} FROM {self.lease.table} ORDER BY {order}")
        return [tuple(row.values()) for row in rows].index(taken.key)

    def siblings(self) -> list[Lease]:
        """Every contract of this table: rights are granted for all of them together."""
        known = [contract.lease for contract in CONTRACTS] + [actor.lease for actor in ROSTER if actor.lease]
        return [lease for lease in known if lease.table == self.lease.table]

    def is_stale_to_others(self, row: Row) -> bool:
        """Nobody's: in the state that stale rows get, without the binding and without the token."""
        lease = self.lease
        if lease.stale.state is None:
            return row[lease.state] == lease.running and row[lease.token] is None
        bound = [row[name] for name in (lease.owner, lease.heartbeat, lease.expiry, lease.token) if name]
        return row[lease.state] == lease.stale.state and not any(bound)

    def arrays(
        self, statement: Statement, rows: Sequence[Taken], values: Mapping[str, Any] | None = None
    ) -> list[Any]:
        keys = [[row.key[number] for row in rows] for number in range(len(self.lease.key))]
        extras = [[(values or {}).get(name)] * len(rows) for name in statement.extras]
        return [*keys, [row.token for row in rows], *extras]

    async def _as_worker(
        self, connection: Connection | None, statement: Statement, *arguments: Any
    ) -> Sequence[Row]:
        if connection is not None:
            return await connection.fetch(statement.sql, *arguments)
        async with self.connected("worker") as worker:
            return await worker.fetch(statement.sql, *arguments)
