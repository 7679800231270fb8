"""Fixtures: `database` is a migrated database of the test's own, `server` the PostgreSQL of this test run."""

from collections.abc import AsyncIterator, Iterator

import pytest

from supervisor.embedded import Urls
from tests.support import databases, garbage
from tests.support.server import Server, claim_root, own_root, release_root, shared_server, start_server

ROOT_LOCK = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[ROOT_LOCK] = claim_root()


def pytest_unconfigure(config: pytest.Config) -> None:
    if ROOT_LOCK in config.stash:
        release_root(config.stash[ROOT_LOCK])
        del config.stash[ROOT_LOCK]


def pytest_collection_finish() -> None:
    garbage.collect_between_tests()


def pytest_runtest_logfinish() -> None:
    garbage.test_ended()


@pytest.fixture(scope="session")
def server() -> Server:
    """The server of this test run; its roles are shared by all tests."""
    return shared_server()


@pytest.fixture
async def database(server: Server) -> AsyncIterator[Urls]:
    """A fresh, migrated database."""
    async with databases.fresh_database(server) as urls:
        yield urls


@pytest.fixture
async def absent_database(server: Server) -> AsyncIterator[Urls]:
    """Addresses of a database that is not there yet."""
    name = databases.new_name()
    yield server.urls(name)
    await databases.drop(server, name)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """An empty server of this test's own, for tests that change roles or stop it."""
    cluster, server = start_server(own_root())
    yield server
    cluster.stop()
