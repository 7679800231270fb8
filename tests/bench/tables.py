"""What is worked on here: a job whose handler does nothing, and a domain's table with the plain contract."""

import json
from typing import Final

import asyncpg

from supervisor.embedded import Urls
from supervisor.plain_lease import plain_lease, plain_migration
from tests.support.example_domain.install import apply_as_owner
from tests.support.place import connected

DOMAIN: Final = "bench"
JOB: Final = "nothing"
# the API knows the domains that are installed, and not this one; its runs are never due
LATER: Final = "later"
COLUMNS: Final = {"payload": "jsonb NOT NULL DEFAULT '{}'"}
ROWS: Final = plain_lease("bench.rows", COLUMNS)


async def prepare(urls: Urls, *, paused: bool = True) -> None:
    await apply_as_owner(urls, f"CREATE SCHEMA bench; {plain_migration(ROWS, COLUMNS)}")
    async with connected(urls.admin) as admin:
        await save_job(admin, JOB, parameters={"asked_at": {"type": "number"}})
        await save_job(admin, LATER, domain="command", payload={"argv": ["true"]})
        if paused:
            await pause(admin)


async def pause(admin: asyncpg.Connection) -> None:
    """Nothing is worked on until a phase says go."""
    await admin.execute("INSERT INTO supervisor.domain_pause (domain, actor) VALUES ($1, 'bench')", DOMAIN)


async def save_job(admin: asyncpg.Connection, name: str, **spec: object) -> None:
    wanted = {"domain": DOMAIN, "payload": {}, **spec}
    await admin.execute(
        "SELECT supervisor.save_job('bench', $1, $2::text::jsonb, true)", name, json.dumps(wanted)
    )


async def add_rows(urls: Urls, count: int) -> None:
    async with connected(urls.admin) as admin:
        await admin.execute("INSERT INTO bench.rows (payload) SELECT '{}' FROM generate_series(1, $1)", count)
        await admin.execute("ANALYZE bench.rows")
