"""Media acted upon by hand: writes as the control role, looks as the administrator, and guards taken out."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from blake3 import blake3

from supervisor.embedded import Urls
from tests.support.sessions import borrow, give_back

WRITE = "SELECT * FROM media.write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::text::jsonb, $13)"
SLOT = ("w1", "post", "7", "gallery", 0)
COVER = ("w1", "post", "7", "cover", 0)
NO_SLOT = (None, None, None, None, None)
EVENTS = "SELECT * FROM public.media_write_events WHERE request_id = $1 ORDER BY created_at"


def hash_of(name: str) -> str:
    return blake3(name.encode()).hexdigest()


def blob(name: str, *, mime_type: str = "image/png", size: int = 10, stored: bool = True) -> dict[str, Any]:
    """The facts of a content; `stored` says that its artifact has been put."""
    facts = {"hash": hash_of(name), "mime_type": mime_type, "size": size}
    return {**facts, "storage_key": f"media/{name}.{uuid4().hex}"} if stored else facts


def slot(position: int = 0, role: str = "gallery", entity: str = "7") -> tuple[Any, ...]:
    return ("w1", "post", entity, role, position)


@dataclass
class World:
    urls: Urls
    admin: "asyncpg.Connection[asyncpg.Record]"
    control: "asyncpg.Connection[asyncpg.Record]"
    worker: "asyncpg.Connection[asyncpg.Record]"

    @classmethod
    async def open(cls, urls: Urls) -> "World":
        connections = [await borrow(url) for url in (urls.admin, urls.control, urls.worker)]
        return cls(urls, *connections)

    async def close(self) -> None:
        for connection in (self.admin, self.control, self.worker):
            await give_back(connection)

    async def write(
        self,
        action: str,
        where: Sequence[Any] = NO_SLOT,
        content: dict[str, Any] | None = None,
        *,
        ref: int | None = None,
        on_occupied: str | None = None,
        request: UUID | None = None,
        actor: str = "anna",
        principal: str | None = None,
        is_admin: bool = False,
        by: "asyncpg.Connection[asyncpg.Record] | None" = None,
    ) -> asyncpg.Record:
        """As somebody who writes for nobody else, unless `principal` says so."""
        facts = None if content is None else json.dumps(content)
        who = (actor, principal or actor, is_admin)
        row = await (by or self.control).fetchrow(
            WRITE, request or uuid4(), action, *who, *where, ref, facts, on_occupied
        )
        assert row is not None
        return row

    async def attach(self, name: str, where: Sequence[Any] = SLOT, **more: Any) -> asyncpg.Record:
        return await self.write("attach", where, blob(name), **more)

    async def attached(self, name: str, where: Sequence[Any] = SLOT) -> int:
        """The ref of an attach that went well."""
        answer = await self.attach(name, where)
        assert answer["result"] == "OK_INSERTED", dict(answer)
        return int(answer["ref_id"])

    async def move(self, ref: int, position: int, **more: Any) -> asyncpg.Record:
        return await self.write("move", (None, None, None, None, position), ref=ref, **more)

    async def detach(self, ref: int, **more: Any) -> asyncpg.Record:
        return await self.write("detach", ref=ref, **more)

    async def events(self, request: UUID) -> list[asyncpg.Record]:
        return list(await self.admin.fetch(EVENTS, request))

    async def story(self, request: UUID) -> list[tuple[Any, ...]]:
        return [(e["event_type"], e["decision"], e["result"]) for e in await self.events(request)]

    async def refs(self) -> dict[tuple[str, str, int], int]:
        """Active refs by entity, role and position."""
        rows = await self.admin.fetch("SELECT * FROM public.media_refs WHERE deleted_at IS NULL")
        return {(row["entity_id"], row["role"], row["position"]): row["id"] for row in rows}

    async def row(self, ref: int) -> asyncpg.Record:
        row = await self.admin.fetchrow("SELECT * FROM public.media_refs WHERE id = $1", ref)
        assert row is not None
        return row

    async def value(self, sql: str, *args: Any) -> Any:
        return await self.admin.fetchval(sql, *args)

    async def set(self, name: str, value: str) -> None:
        await self.admin.execute(
            "UPDATE supervisor.setting SET value = $2::text::jsonb WHERE name = $1", name, value
        )

    async def lead(self) -> int:
        sql = "SELECT epoch FROM supervisor.acquire('w1', 600, 7, 0, 0, 0)"
        return int(await self.control.fetchval(sql))

    async def tables(self) -> list[list[tuple[Any, ...]]]:
        """Everything of blobs and refs, to see that nothing changed."""
        blobs = await self.admin.fetch("SELECT * FROM public.media_blobs ORDER BY file_hash")
        refs = await self.admin.fetch("SELECT * FROM public.media_refs ORDER BY id")
        return [[tuple(row) for row in rows] for rows in (blobs, refs)]


async def refused(code: str, call: Any) -> str:
    """The message of a call that must end with this SQLSTATE, or one of these."""
    with pytest.raises(asyncpg.PostgresError) as caught:
        await call
    assert caught.value.sqlstate in code.split(), f"{caught.value.sqlstate}: {caught.value}"
    return str(caught.value)


async def many(urls: Urls, number: int) -> list["asyncpg.Connection[asyncpg.Record]"]:
    return list(await asyncio.gather(*(borrow(urls.control) for _ in range(number))))
