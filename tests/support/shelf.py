"""Rows of the dedup domain as scans and hashes leave them, and its jobs moved by hand, without a worker."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from supervisor.embedded import Urls
from tests.support.sessions import borrow, give_back

SAME = bytes(range(32))


@dataclass
class Shelf:
    """Acts as the superuser."""

    connection: asyncpg.Connection

    @classmethod
    async def open(cls, urls: Urls) -> "Shelf":
        return cls(await borrow(urls.admin))

    async def close(self) -> None:
        await give_back(self.connection)

    async def value(self, sql: str, *args: Any) -> Any:
        return await self.connection.fetchval(sql, *args)

    async def rows(self, sql: str, *args: Any) -> list[dict[str, Any]]:
        return [dict(row) for row in await self.connection.fetch(sql, *args)]

    async def library(self, name: str = "photos") -> int:
        made: int = await self.value("SELECT id FROM dedup.add_library('test', $1, $1)", name)
        return made

    async def file(
        self,
        path: str,
        content: bytes | None = SAME,
        *,
        library: str = "photos",
        size: int = 10,
        algorithm: str = "blake3",
        missing: bool = False,
        needs_hash: bool = False,
        mtime_ns: int = 1,
    ) -> int:
        """A file with this hash; None: it was never hashed."""
        made: int = await self.value(
            """INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns, is_missing,
                      needs_hash, hash_algorithm, content_hash, hashed_size, hashed_mtime_ns)
               SELECT l.id, $2, $3, $4, $5, $6, $7, $8, $3, $4 FROM dedup.library_roots l
                WHERE l.name = $1 RETURNING id""",
            library,
            path,
            size,
            mtime_ns,
            missing,
            needs_hash or content is None,
            algorithm if content is not None else None,
            content,
        )
        return made

    async def jobs(self) -> list[dict[str, Any]]:
        return await self.rows(
            """SELECT j.id, j.kind, j.status, j.payload, j.dry_run, j.run_id, l.name AS library
                 FROM dedup.jobs j LEFT JOIN dedup.library_roots l ON l.id = j.library_id
                ORDER BY j.created_at, j.id"""
        )

    async def active(self, kind: str | None = None) -> UUID | None:
        found: UUID | None = await self.value(
            """SELECT id FROM dedup.jobs
                WHERE status IN ('pending', 'running') AND ($1::text IS NULL OR kind = $1)
                ORDER BY created_at LIMIT 1""",
            kind,
        )
        return found

    async def job(self, kind: str, library: str | None = "photos", **payload: Any) -> UUID:
        """Somebody else's."""
        made: UUID = await self.value(
            "SELECT id FROM dedup.request_job('other', $1, $2, $3::text::jsonb, true)",
            kind,
            library,
            json.dumps(payload),
        )
        return made

    async def begin(
        self, job: UUID, *, done: int = 0, total: int | None = None, progress: float = 0.0
    ) -> None:
        await self.connection.execute(
            """UPDATE dedup.jobs SET status = 'running', worker_id = 'hand', claim_id = gen_random_uuid(),
                      started_at = now(), lease_expires_at = now() + interval '1 hour',
                      processed_items = $2, total_items = $3, progress = $4
                WHERE id = $1""",
            job,
            done,
            total,
            progress,
        )

    async def end(self, job: UUID, status: str = "completed", code: str | None = None) -> None:
        """From wherever it is."""
        if await self.value("SELECT status FROM dedup.jobs WHERE id = $1", job) != "running":
            await self.begin(job)
        await self.connection.execute(
            """UPDATE dedup.jobs SET status = $2, error_code = $3, error_message = $4, finished_at = now(),
                      lease_expires_at = NULL WHERE id = $1""",
            job,
            status,
            code,
            code and "it broke",
        )

    async def walked(self, job: UUID, **figures: int) -> int:
        """A walk of this job that ended well; figures by the names of their columns."""
        session: int = await self.value(
            """INSERT INTO dedup.scan_sessions (library_id, job_id, status, finished_at)
               SELECT library_id, id, 'succeeded', now() FROM dedup.jobs WHERE id = $1 RETURNING id""",
            job,
        )
        for name, count in figures.items():
            await self.connection.execute(
                f"UPDATE dedup.scan_sessions SET {name} = $2 WHERE id = $1", session, count
            )
        return session
