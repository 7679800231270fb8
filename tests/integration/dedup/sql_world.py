"""The tables of the dedup domain acted upon by hand: what people ask, workers claim and the leader does.

A `Claimed` is a row under a lease, taken by the rendered statements of its contract as the worker's role.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from actors.dedup.leases import SCAN
from supervisor.lease import Lease
from supervisor.lease_sql import render
from tests.integration.sql.world import Hand, World

HASH = bytes(range(32))
OTHER = bytes(32)


@dataclass(frozen=True)
class Claimed:
    id: Any
    claim: UUID


@dataclass(frozen=True)
class Seen:
    """A file as a walk finds it."""

    path: str
    size: int = 10
    mtime: int = 1
    inode: int = 1
    device: int = 1


class DedupWorld(World):
    """A leader, a library `photos`, and calls under their own names."""

    library: int

    async def set_up(self) -> None:
        await self.open()
        await self.lead()
        known = await self.admin.value("SELECT id FROM dedup.library_roots WHERE name = 'photos'")
        self.library = known or await self.add_library("photos")

    async def add_library(self, name: str) -> int:
        return int(await self.control.value("SELECT id FROM dedup.add_library('anna', $1, $1)", name))

    async def switch(self, name: str, value: str) -> None:
        await self.admin.sql(f"UPDATE supervisor.setting SET value = '{value}' WHERE name = $1", name)

    async def request(
        self, kind: str, library: str | None = "photos", *, hand: Hand | None = None, **payload: Any
    ) -> asyncpg.Record:
        return await (hand or self.control).one(
            "SELECT * FROM dedup.request_job('anna', $1, $2, $3::text::jsonb, true)",
            kind, library, json.dumps(payload),
        )  # fmt: skip

    async def claim(
        self, lease: Lease, *, owner: str = "w1", rows: int = 1, hand: Hand | None = None
    ) -> list[Claimed]:
        found = await (hand or self.worker).sql(render(lease).claim.sql, owner, rows, "dedup")
        return [Claimed(row["c0"], row["c1"]) for row in found if row["c1"] is not None]

    async def claimed(self, lease: Lease, kind: str | None = None, **payload: Any) -> Claimed:
        """A job of this kind, asked for and claimed."""
        if kind is not None:
            await self.request(kind, **payload)
        [claimed] = await self.claim(lease)
        return claimed

    async def finish(
        self, lease: Lease, row: Claimed, how: str = "done", *, owner: str = "w1", **values: Any
    ) -> str:
        statement = render(lease).finish[how]
        reason = {"tenure_code": "BROKEN", "tenure_message": "it broke", "tenure_after": None}
        extras = [[{**reason, **values}.get(name)] for name in statement.extras]
        [answer] = await self.worker.sql(statement.sql, owner, [row.id], [row.claim], *extras)
        return str(answer["answer"])

    async def recover(self, lease: Lease) -> int:
        return len(await self.control.sql(render(lease).recover.sql, 100))

    async def expire(self, table: str) -> None:
        await self.unguarded(
            f"UPDATE dedup.{table} SET lease_expires_at = now() WHERE lease_expires_at IS NOT NULL"
        )

    async def job_row(self, job: UUID) -> asyncpg.Record:
        return await self.admin.one("SELECT * FROM dedup.jobs WHERE id = $1", job)

    async def file(
        self, path: str = "a.jpg", *, size: int = 10, mtime: int = 1, content: bytes | None = None,
        library: int | None = None, inode: int = 1, prefix: bytes | None = None, algorithm: str = "blake3",
    ) -> int:  # fmt: skip
        """A row as a scan, and where it has a content a hash, would have left it."""
        return int(
            await self.admin.value(
                "INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns, inode, "
                "device, needs_hash, hash_algorithm, content_hash, hashed_size, hashed_mtime_ns, "
                "prefix_hash) "
                "SELECT $1, $2::text, $3::bigint, $4::bigint, $5, 1, $6::bytea IS NULL, "
                "CASE WHEN $6::bytea IS NOT NULL THEN $8::text END, $6::bytea, $3::bigint, $4::bigint, "
                "$7::bytea RETURNING id",
                library or self.library, path, size, mtime, inode, content, prefix, algorithm,
            )
        )  # fmt: skip

    async def files(self) -> dict[str, asyncpg.Record]:
        rows = await self.admin.sql("SELECT * FROM dedup.library_files ORDER BY id")
        return {row["relative_path"]: row for row in rows}

    # a walk

    async def begin(self, job: Claimed) -> asyncpg.Record:
        return await self.worker.one("SELECT * FROM dedup.begin_scan($1, $2)", job.id, job.claim)

    async def record(
        self, job: Claimed, session: int, found: Sequence[Seen] = (), *, batch: int = 1, after: str = "",
        upto: str | None = None, final: bool = True, unknown: Sequence[str] = (),
    ) -> tuple[int, int, int]:  # fmt: skip
        row = await self.worker.one(
            "SELECT * FROM dedup.record_scan($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, "
            "$15, 1, 0)",
            job.id, job.claim, session, batch, after,
            upto if upto is not None else found[-1].path if found else after, final,
            [f.path for f in found], [f.size for f in found], [f.mtime for f in found],
            [f.inode for f in found], [f.device for f in found],
            list(unknown), ["EACCES"] * len(unknown), list(unknown),
        )  # fmt: skip
        return row["files_new"], row["files_changed"], row["files_missing"]

    async def scanned(self, *found: Seen, **options: Any) -> asyncpg.Record:
        """A whole walk that finds these; the session as it ended."""
        job = await self.claimed(SCAN, "scan")
        session = (await self.begin(job))["session_id"]
        await self.record(job, session, sorted(found, key=lambda f: f.path), **options)
        after: int | None = 0
        while after is not None:
            after = await self.worker.value(
                "SELECT last_id FROM dedup.fold_moves($1, $2, $3, $4, 10)", job.id, job.claim, session, after
            )
        ended = await self.worker.one(
            "SELECT * FROM dedup.end_scan($1, $2, $3, NULL, NULL)", job.id, job.claim, session
        )
        assert await self.finish(SCAN, job, progress=1.0) == "RECORDED"
        return ended

    # deletion

    async def delete(
        self, keep: int | None = None, remove: Sequence[int] | None = None, *, content: bytes = HASH,
        dry_run: bool = False,
    ) -> asyncpg.Record:  # fmt: skip
        return await self.control.one(
            "SELECT * FROM dedup.request_delete('anna', 'blake3', $1, $2, $3, $4)",
            content, keep, None if remove is None else list(remove), dry_run,
        )  # fmt: skip

    async def trash(self, job: Claimed, file: int, *, hand: Hand | None = None) -> bool:
        return bool(
            await (hand or self.worker).value(
                "SELECT dedup.trash_file($1, $2, $3, '.trash/x')", job.id, job.claim, file
            )
        )

    # guards taken out

    async def without(self, function: str, old: str, new: str = "") -> None:
        """Re-create one function with a fragment of its source replaced; the fragment must be there."""
        source = await self.admin.value(
            "SELECT pg_get_functiondef(p.oid) FROM pg_proc p "
            "WHERE p.pronamespace = 'dedup'::regnamespace AND p.proname = $1",
            function,
        )
        assert old in source, f"{function} no longer says {old!r}"
        await self.admin.connection.execute(source.replace(old, new))


async def refused(code: str, call: Any) -> str:
    """The message of a call that must end with this SQLSTATE."""
    with pytest.raises(asyncpg.PostgresError) as caught:
        await call
    assert caught.value.sqlstate == code, f"{caught.value.sqlstate}: {caught.value}"
    return str(caught.value)
