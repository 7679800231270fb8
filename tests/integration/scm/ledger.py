"""A database with repositories in it, and hands that claim, record and finish syncs as a worker does."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import asyncpg

from actors.scm.leases import SYNC
from supervisor.embedded import Urls
from supervisor.lease_sql import render
from tests.support.sessions import connected

Connection = asyncpg.Connection
STATEMENTS: Final = render(SYNC)
LONG: Final = {"lock_timeout": "5min", "statement_timeout": "5min"}


@dataclass(frozen=True)
class Held:
    """A run that somebody has claimed."""

    run: str
    claim: UUID
    owner: str


def sha(number: int) -> str:
    return f"{number:040x}"


def revision(number: int, **more: Any) -> dict[str, Any]:
    return {
        "rev": number,
        "author": "alice",
        "ts": f"2024-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z",
        "message": f"change {number}",
        "meta": {"changed_paths": [{"path": "/a", "action": "M", "kind": "file"}]},
        **more,
    }


def commit(number: int, **more: Any) -> dict[str, Any]:
    return {
        "sha": sha(number),
        "author_name": "Alice",
        "author_email": "alice@example.org",
        "ts": instant(number),
        "message": f"change {number}",
        "meta": {"parent_ids": [sha(number - 1)], "stats": {"additions": 1, "deletions": 0, "total": 1}},
        **more,
    }


def instant(number: int) -> str:
    return (
        f"2024-01-{1 + number // 86400:02}T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    )


def patch(key: str, digest: str = "a" * 64) -> dict[str, Any]:
    return {"uri": key, "sha256": digest, "size_bytes": 12}


class Ledger:
    def __init__(self, urls: Urls, control: Connection, admin: Connection) -> None:
        self.urls = urls
        self.control = control
        self.admin = admin
        self.epoch = 0

    async def repo(self, name: str = "r", kind: str = "svn", **config: Any) -> int:
        urls = {
            "svn": f"svn://svn.example/{name}",
            "git": f"https://git.example/{name}",
            "gitlab": "https://gitlab.example",
        }
        row = await self.control.fetchrow(
            "SELECT * FROM scm.add_repo('test', $1, $2, $3, 'proj', NULL, $4)",
            name, kind, urls[kind], json.dumps(config),
        )  # fmt: skip
        assert row is not None
        return int(row["repo_id"])

    async def request(
        self,
        repo: str = "r",
        source: str = "svn",
        mode: str | None = None,
        span: Mapping[str, Any] | None = None,
    ) -> tuple[str, bool]:
        row = await self.control.fetchrow(
            "SELECT (s.run).run_id, s.created FROM scm.request_sync('test', $1, $2, $3, $4) AS s",
            repo, source, mode, None if span is None else json.dumps(span),
        )  # fmt: skip
        assert row is not None
        return row["run_id"], row["created"]

    async def claim(self, owner: str = "w1", rows: int = 10) -> list[Held]:
        async with connected(self.urls.worker) as worker:
            return await claim(worker, owner, rows)

    async def begun(self, repo: str = "r", source: str = "svn", owner: str = "w1") -> Held:
        await self.request(repo, source)
        (held,) = await self.claim(owner)
        return held

    async def begin(self, held: Held) -> asyncpg.Record:
        async with connected(self.urls.worker) as worker:
            row = await worker.fetchrow("SELECT * FROM scm.begin_sync($1, $2)", held.run, held.claim)
            assert row is not None
            return row

    async def record(
        self,
        held: Held,
        batch: int,
        facts: Sequence[Mapping[str, Any]],
        watermark: object = None,
        *,
        kind: str = "svn",
    ) -> tuple[int, int, int, bool]:
        async with connected(self.urls.worker) as worker:
            return await record(worker, held, batch, facts, watermark, kind=kind)

    async def finish(
        self, held: Held, how: str = "done", code: str | None = None, after: float | None = None
    ) -> str:
        async with connected(self.urls.worker) as worker:
            return await finish(worker, held, how, code, after)

    async def expire(self) -> None:
        """Every lease is over."""
        async with connected(self.urls.admin, session_replication_role="replica") as admin:
            await admin.execute("UPDATE scm.sync_runs SET lease_expires_at = now() WHERE status = 'running'")

    async def recover(self) -> int:
        return len(await self.control.fetch(STATEMENTS.recover.sql, 100))

    async def duty(self, name: str) -> int:
        if not self.epoch:
            row = await self.control.fetchrow(
                "SELECT * FROM supervisor.acquire('l1', 600, 60, 0, NULL, NULL)"
            )
            assert row is not None
            self.epoch = row["epoch"]
        return int(await self.control.fetchval(f"SELECT scm.{name}($1)", self.epoch))

    async def run(self, run: str) -> dict[str, Any]:
        row = await self.admin.fetchrow("SELECT * FROM scm.sync_runs WHERE run_id = $1", run)
        assert row is not None
        return {
            name: json.loads(value) if name in _JSON and value is not None else value
            for name, value in row.items()
        }

    async def task(self, repo: str = "r", source: str = "svn") -> asyncpg.Record:
        row = await self.admin.fetchrow(
            "SELECT t.* FROM scm.sync_tasks AS t JOIN scm.repos USING (repo_id) "
            "WHERE name = $1 AND source_type = $2",
            repo,
            source,
        )
        assert row is not None
        return row

    async def moves(self, run: str) -> list[str]:
        rows = await self.admin.fetch(
            "SELECT to_status FROM scm.sync_run_moves WHERE run_id = $1 ORDER BY id", run
        )
        return [row["to_status"] for row in rows]

    async def cursor(self, repo_id: int, source: str = "svn") -> dict[str, Any] | None:
        value = await self.admin.fetchval(
            "SELECT value FROM logbook.kv WHERE namespace = 'scm.sync' AND key = $1",
            f"{source}_cursor:{repo_id}",
        )
        return None if value is None else json.loads(value)

    async def count(self, table: str) -> int:
        return int(await self.admin.fetchval(f"SELECT count(*) FROM {table}"))

    @asynccontextmanager
    async def as_worker(self) -> AsyncIterator[Connection]:
        async with connected(self.urls.worker, **LONG) as worker:
            yield worker


_JSON: Final = {
    "watermark_start",
    "watermark_end",
    "watermark",
    "stats_json",
    "error_json",
    "range_json",
    "config_json",
}


async def one(connection: Connection, statement: str, *arguments: object) -> asyncpg.Record:
    (row,) = await connection.fetch(statement, *arguments)
    return row


async def claim(worker: Connection, owner: str, rows: int = 10) -> list[Held]:
    found = await worker.fetch(STATEMENTS.claim.sql, owner, rows, "scm")
    return [Held(row["c0"], row["c1"], owner) for row in found if row["c1"] is not None]


async def record(
    worker: Connection,
    held: Held,
    batch: int,
    facts: Sequence[Mapping[str, Any]],
    watermark: object = None,
    *,
    kind: str = "svn",
) -> tuple[int, int, int, bool]:
    row = await worker.fetchrow(
        f"SELECT * FROM scm.record_{kind}($1, $2, $3, $4, $5)",
        held.run, held.claim, batch, json.dumps(facts), None if watermark is None else json.dumps(watermark),
    )  # fmt: skip
    assert row is not None
    return row["inserted"], row["updated"], row["skipped"], row["is_new"]


async def finish(
    worker: Connection, held: Held, how: str = "done", code: str | None = None, after: float | None = None
) -> str:
    statement = STATEMENTS.finish[how]
    given = {"tenure_code": code or "CODE", "tenure_message": "it failed", "tenure_after": after}
    extras = [[given[name]] for name in statement.extras]
    (row,) = await worker.fetch(statement.sql, held.owner, [held.run], [held.claim], *extras)
    return str(row["answer"])


async def release(worker: Connection, held: Held) -> int:
    assert STATEMENTS.release is not None
    return len(await worker.fetch(STATEMENTS.release.sql, held.owner, [held.run], [held.claim]))


@asynccontextmanager
async def opened(urls: Urls) -> AsyncIterator[Ledger]:
    async with connected(urls.admin) as admin, connected(urls.control, **LONG) as control:
        yield Ledger(urls, control, admin)
