"""A cluster with no role and no database of ours, for tests of what the migrations make in one."""

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import asyncpg

from schemas import Source
from tests.support.server import Server

PASSWORD = "pw"
RUNTIME = ("control", "worker", "maintenance", "console", "client")


@dataclass(frozen=True)
class Place:
    """Such a cluster, its log, and the addresses of the database `tenure` that is not there yet."""

    server: Server
    log: Path

    @property
    def system(self) -> str:
        """The superuser, in a database that is always there."""
        return self.server.urls("postgres").admin

    @property
    def admin(self) -> str:
        return self.server.urls("tenure").admin

    @property
    def runtime(self) -> dict[str, str]:
        return self.server.urls("tenure").runtime()

    def url(self, user: str, database: str = "tenure", password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{quote(password, safe='')}@127.0.0.1:{self.server.port}/{database}"

    def in_database(self, database: str) -> tuple[str, dict[str, str]]:
        urls = self.server.urls(database)
        return urls.admin, urls.runtime()


@asynccontextmanager
async def connected(url: str, **options: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(url, server_settings=options)
    try:
        yield connection
    finally:
        await connection.close(timeout=10)


async def run_sql(url: str, *statements: str) -> None:
    async with connected(url) as connection:
        for statement in statements:
            await connection.execute(statement)


async def run_script(url: str, script: str) -> None:
    """As psql does: a statement at a time."""
    await run_sql(url, *(statement for statement in script.split(";\n") if statement.strip()))


async def value(url: str, query: str, *arguments: object) -> object:
    async with connected(url) as connection:
        return await connection.fetchval(query, *arguments)


async def empty(server: Server) -> None:
    async with connected(server.urls("postgres").admin) as connection:
        databases = "SELECT quote_ident(datname) FROM pg_database WHERE oid >= 16384"
        for (name,) in await connection.fetch(databases):
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        roles = "SELECT string_agg(quote_ident(rolname), ', ') FROM pg_roles WHERE oid >= 16384"
        if names := await connection.fetchval(roles):
            await connection.execute(f"DROP ROLE {names}")


async def fingerprint(url: str) -> object:
    """Every catalog row a migration could have written, with the transaction that wrote it."""
    catalogs = (
        "authid", "auth_members", "database", "db_role_setting", "namespace", "proc", "class", "default_acl",
        "trigger", "constraint",
    )  # fmt: skip
    async with connected(url) as connection:
        return [
            await connection.fetch(f"SELECT xmin, ctid FROM pg_{name} ORDER BY ctid") for name in catalogs
        ]


def write_source(
    root: Path, migrations: Mapping[str, str], functions: Mapping[str, str] | None = None
) -> Source:
    shutil.rmtree(root, ignore_errors=True)
    for room, files in (("migrations", migrations), ("functions", functions or {})):
        (root / room).mkdir(parents=True)
        for name, text in files.items():
            (root / room / f"{name}.sql").write_text(text)
    return Source(root)


THING = {
    "0001_thing": "CREATE TABLE supervisor.thing (id int); GRANT SELECT ON supervisor.thing TO tenure_worker;"
}


def function(name: str, answer: str) -> str:
    return (
        f"CREATE OR REPLACE FUNCTION supervisor.{name}() RETURNS int LANGUAGE sql AS $$ SELECT {answer} $$;"
    )
