"""Databases for tests: cloned from a template that the project's own migrations made once in a run."""

import re
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg

from schemas.migrate import migrate
from supervisor.embedded import Urls
from tests.support.server import Server, exclusively

TEMPLATE = "tenure_template"
SYSTEM = "postgres"


@asynccontextmanager
async def fresh_database(server: Server) -> AsyncIterator[Urls]:
    await _ensure_template(server)
    name = new_name()
    await run_as_admin(server, [f'CREATE DATABASE "{name}" TEMPLATE {TEMPLATE} STRATEGY wal_log'])
    try:
        yield server.urls(name)
    finally:
        await drop(server, name)


async def drop(server: Server, name: str) -> None:
    await run_as_admin(server, [f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'])


def new_name() -> str:
    return f"test_{uuid.uuid4().hex[:16]}"


async def run_as_admin(server: Server, statements: Sequence[str], database: str = SYSTEM) -> None:
    connection = await asyncpg.connect(server.urls(database).admin)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def _ensure_template(server: Server) -> None:
    with exclusively("template"):
        connection = await asyncpg.connect(server.urls(SYSTEM).admin)
        try:
            found = "SELECT count(*) FROM pg_database WHERE datname = $1 AND datistemplate"
            if await connection.fetchval(found, TEMPLATE):
                return
        finally:
            await connection.close()
        urls = server.urls(TEMPLATE)
        await migrate(urls.admin, runtime_urls=urls.runtime())
        # Marked last: a template half made by a failed migration is never cloned.
        await run_as_admin(
            server, [f"ALTER DATABASE {TEMPLATE} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false"]
        )


def with_port(url: str, port: int) -> str:
    """The same address through another port, such as a proxy's."""
    return re.sub(r":\d+/", f":{port}/", url)
