"""`bench`: each contract in turn, with an empty table, in one database for all of them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import asyncpg
import pytest

from supervisor.embedded import Urls
from supervisor.lease_sql import render
from tests.conformance.bench import Bench
from tests.conformance.contracts import CONTRACTS, Contract
from tests.support import databases, lending
from tests.support.example_domain.install import apply_as_owner
from tests.support.server import Server


@pytest.fixture(params=CONTRACTS, ids=lambda contract: contract.name)
def contract(request: pytest.FixtureRequest) -> Contract:
    chosen: Contract = request.param
    return chosen


@dataclass(frozen=True)
class Tables:
    """A database with the tables of all contracts, and what is in it before a test."""

    urls: Urls
    caretaker: asyncpg.Connection
    original: lending.Original


class Databases(AsyncExitStack):
    """One database for all tests of a module, and another one after a test that changed its rights."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._tables: Tables | None = None

    async def emptied(self) -> Urls:
        if self._tables is None or not await lending.restore(self._tables.caretaker, self._tables.original):
            self._tables = await self._made()
        return self._tables.urls

    async def _made(self) -> Tables:
        urls = await self.enter_async_context(databases.fresh_database(self._server))
        for script in dict.fromkeys(contract.setup for contract in CONTRACTS if contract.setup):
            await apply_as_owner(urls, script)
        caretaker = await asyncpg.connect(urls.admin, server_settings=lending.OPTIONS)
        self.callback(caretaker.terminate)
        return Tables(urls, caretaker, await lending.read_original(caretaker))


@pytest.fixture(scope="module")
async def tables(server: Server) -> AsyncIterator[Databases]:
    async with Databases(server) as made:
        yield made


@pytest.fixture
async def bench(contract: Contract, tables: Databases) -> Bench:
    return Bench(contract, render(contract.lease), await tables.emptied())
