"""A database with the rights that a sync needs, for all tests of a module. Not a test.

Granting them changes the schema, so it is done once, and the database is emptied to what it was after that.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest_asyncio

from supervisor.embedded import Urls
from tests.integration.scm.ledger import LONG, Ledger, opened
from tests.support.lending import Shared, read_original
from tests.support.place import connected


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def granted_database(module_database: Shared) -> Shared:
    async with opened(module_database.urls):
        return replace(module_database, original=await read_original(module_database.connection))


@pytest_asyncio.fixture(loop_scope="session")
async def emptied_database(granted_database: Shared) -> Urls:
    await granted_database.empty()
    return granted_database.urls


@asynccontextmanager
async def ledger_of(urls: Urls) -> AsyncIterator[Ledger]:
    async with connected(urls.admin) as admin, connected(urls.control, **LONG) as control:
        yield Ledger(urls, control, admin)
