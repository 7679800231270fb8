"""Databases for tests: cloned from a template that the project's own migrations made once in a run."""

import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from schemas.migrate import migrate
from supervisor.embedded import USERS, Urls
from supervisor.wiring import lease_rights, task_types
from tests.support.server import Server, exclusively
from tests.support.sessions import connected, forget

TEMPLATE = "tenure_template"
SYSTEM = "postgres"


@asynccontextmanager
async def fresh_database(server: Server, template: str = TEMPLATE) -> AsyncIterator[Urls]:
    """A database that is made for this and dropped after it."""
    name = await create(server, template)
    try:
        yield server.urls(name)
    finally:
        await drop(server, name)


async def create(server: Server, template: str = TEMPLATE) -> str:
    await _ensure_template(server)
    name = new_name()
    await run_as_admin(server, [f'CREATE DATABASE "{name}" TEMPLATE {template} STRATEGY wal_log'])
    return name


async def drop(server: Server, name: str) -> None:
    forget(name)
    await run_as_admin(server, [f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'])


def new_name() -> str:
    return f"tenure_test_{uuid.uuid4().hex[:16]}"


async def run_as_admin(server: Server, statements: Sequence[str], database: str = SYSTEM) -> None:
    async with connected(server.urls(database).admin) as connection:
        for statement in statements:
            await connection.execute(statement)


async def ensure_filled(server: Server, name: str, fill: Callable[[Urls], Awaitable[None]]) -> None:
    """A template of this run with rows in it: what many tests need and none changes is made once."""
    await _ensure_template(server)
    with exclusively(name):
        if not await _is_template(server, name):
            await run_as_admin(server, [f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY wal_log"])
            await fill(server.urls(name))
            await _mark_template(server, name)


_with_template: set[str] = set()
"""Passwords of the servers whose template this process has seen: asking again costs a connection."""


async def _ensure_template(server: Server) -> None:
    if server.passwords["admin"] in _with_template:
        return
    with exclusively("template"):
        if not await _is_template(server, TEMPLATE):
            urls = server.urls(TEMPLATE)
            await migrate(
                urls.admin, runtime_urls=urls.runtime(), rights=lease_rights(), task_types=task_types()
            )
            await _quicken_logins(server)
            await _mark_template(server, TEMPLATE)
    _with_template.add(server.passwords["admin"])


async def _quicken_logins(server: Server) -> None:
    """Thousands of connections are made in a run, and stretching its random passwords costs each 3 ms."""
    async with connected(server.urls(SYSTEM).admin) as connection:
        if connection.get_server_version().major >= 16:
            await connection.execute("SET scram_iterations = 1")
            for name, password in server.passwords.items():
                await connection.execute(f"ALTER ROLE {USERS[name]} PASSWORD '{password}'")


async def _is_template(server: Server, name: str) -> bool:
    async with connected(server.urls(SYSTEM).admin) as connection:
        found = "SELECT count(*) FROM pg_database WHERE datname = $1 AND datistemplate"
        return bool(await connection.fetchval(found, name))


async def _mark_template(server: Server, name: str) -> None:
    """Last of all: a template half made by a failure is never cloned."""
    forget(name)
    await run_as_admin(server, [f"ALTER DATABASE {name} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false"])


def with_port(url: str, port: int) -> str:
    """The same address through another port, such as a proxy's."""
    return re.sub(r":\d+/", f":{port}/", url)
