"""Databases as older makes of the dedup domain left them, for the tests of their upgrade.

The scripts stand in `older/`. Their tables belong to tenure_owner, as an administrator has to see to.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from schemas.migrate import MigrateReport, migrate
from supervisor.embedded import Urls
from supervisor.wiring import lease_rights, task_types
from tests.support import databases
from tests.support.place import connected
from tests.support.server import Server

OLDER = Path(__file__).with_name("older")
FULL, EARLY = (OLDER / "full.sql").read_text(), (OLDER / "early.sql").read_text()


@asynccontextmanager
async def older(server: Server, script: str) -> AsyncIterator[Urls]:
    """A database with such a schema and nothing else of ours."""
    name = databases.new_name()
    await databases.run_as_admin(server, [f'CREATE DATABASE "{name}"'])
    try:
        urls = server.urls(name)
        async with connected(urls.admin) as admin:
            await admin.execute("CREATE SCHEMA dedup AUTHORIZATION tenure_owner; SET ROLE tenure_owner")
            await admin.execute(script)
        yield urls
    finally:
        await databases.drop(server, name)


async def upgrade(urls: Urls) -> MigrateReport:
    return await migrate(
        urls.admin, runtime_urls=urls.runtime(), rights=lease_rights(), task_types=task_types()
    )
