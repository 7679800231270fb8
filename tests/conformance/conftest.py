"""`bench`: each contract in turn, with an empty table, in one database for all of them."""

import asyncio
from collections.abc import Iterator

import pytest

from supervisor.embedded import Urls
from supervisor.lease_sql import render
from tests.conformance.bench import Bench
from tests.conformance.contracts import CONTRACTS, Contract
from tests.support import databases
from tests.support.example_domain.install import apply_as_owner
from tests.support.place import connected
from tests.support.server import Server


@pytest.fixture(params=CONTRACTS, ids=lambda contract: contract.name)
def contract(request: pytest.FixtureRequest) -> Contract:
    chosen: Contract = request.param
    return chosen


@pytest.fixture(scope="module")
def tables(server: Server) -> Iterator[Urls]:
    with asyncio.Runner() as runner:
        made = databases.fresh_database(server)
        urls = runner.run(made.__aenter__())
        try:
            for script in dict.fromkeys(contract.setup for contract in CONTRACTS if contract.setup):
                runner.run(apply_as_owner(urls, script))
            yield urls
        finally:
            runner.run(made.__aexit__(None, None, None))


@pytest.fixture
async def bench(contract: Contract, tables: Urls) -> Bench:
    async with connected(tables.admin, session_replication_role="replica") as admin:
        await admin.execute(f"TRUNCATE {contract.lease.table} CASCADE")
    return Bench(contract, render(contract.lease), tables)
