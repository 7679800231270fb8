"""Captured schedules acted upon by hand: as the administrator, as control and as a worker."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg

from supervisor.embedded import Urls
from tests.support.sessions import borrow, connected, give_back

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
DAY = date(2026, 11, 16)
SESSION = "SELECT * FROM schedule_ingest.capture_session WHERE id = $1"
VERSION = (
    "INSERT INTO schedule_ingest.schedule_version "
    "(user_id, schedule_date, version, session_id, payload, payload_hash) "
    "VALUES ($1, $2, $3, $4, $5::text::jsonb, $6)"
)


@dataclass
class World:
    urls: Urls
    admin: Connection
    control: Connection
    worker: Connection

    @classmethod
    async def open(cls, urls: Urls) -> "World":
        return cls(urls, *[await borrow(url) for url in (urls.admin, urls.control, urls.worker)])

    async def close(self) -> None:
        for connection in (self.admin, self.control, self.worker):
            await give_back(connection)

    async def session(self, user: int = 7) -> UUID:
        """One that waits, without pictures."""
        made: UUID = await self.admin.fetchval(
            "INSERT INTO schedule_ingest.capture_session (user_id) VALUES ($1) RETURNING id", user
        )
        return made

    async def session_in(self, state: str, user: int = 7, *, worker: str = "w1", age: str = "0 s") -> UUID:
        """One that has come to this state by its lawful way."""
        session = await self.session(user)
        if state != "pending":
            await self.claim(session, worker, age)
        if state == "done":
            await self.move(session, "done", locked_by=None, locked_at=None)
        if state == "failed":
            await self.move(session, "failed", locked_by=None, locked_at=None, error="no text was found")
        return session

    async def claim(self, session: UUID, worker: str = "w1", age: str = "0 s") -> None:
        await self.admin.execute(
            "UPDATE schedule_ingest.capture_session SET state = 'processing', locked_by = $2, "
            "locked_at = now() - $3::text::interval, claim_id = gen_random_uuid() WHERE id = $1",
            session,
            worker,
            age,
        )

    async def move(self, session: UUID, state: str, **columns: Any) -> None:
        names = "".join(f", {name} = ${number}" for number, name in enumerate(columns, start=3))
        await self.admin.execute(
            "UPDATE schedule_ingest.capture_session "
            f"SET state = $2::text::schedule_ingest.capture_session_state{names} WHERE id = $1",
            session,
            state,
            *columns.values(),
        )

    async def state_of(self, session: UUID) -> str:
        row = await self.admin.fetchrow(SESSION, session)
        assert row is not None
        state: str = row["state"]
        return state

    async def image(self, session: UUID, sequence: int = 1, key: str | None = None) -> None:
        await self.admin.execute(
            "INSERT INTO schedule_ingest.capture_image (session_id, sequence, r2_key) VALUES ($1, $2, $3)",
            session,
            sequence,
            key or f"capture/{uuid4()}",
        )

    async def version(
        self,
        session: UUID | None = None,
        number: int | None = None,
        *,
        user: int = 7,
        day: date = DAY,
        payload: str = "{}",
        hash_: str = "ab",
    ) -> None:
        of = session or await self.session_in("processing", user)
        await self.admin.execute(VERSION, user, day, number, of, payload, hash_)

    async def versions(self, user: int = 7, day: date = DAY) -> list[int]:
        rows = await self.admin.fetch(
            "SELECT version FROM schedule_ingest.schedule_version "
            "WHERE user_id = $1 AND schedule_date = $2 ORDER BY 1",
            user,
            day,
        )
        return [row["version"] for row in rows]

    async def current(self, user: int = 7, day: date = DAY) -> int | None:
        found: int | None = await self.admin.fetchval(
            "SELECT current_version FROM schedule_ingest.day_schedule "
            "WHERE user_id = $1 AND schedule_date = $2",
            user,
            day,
        )
        return found


@asynccontextmanager
async def connections(url: str, count: int) -> AsyncIterator[Sequence[Connection]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connected(url)) for _ in range(count)]
