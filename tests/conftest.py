"""Fixtures: `database` is a migrated database for one test, `server` the PostgreSQL of this test run."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import hypothesis
import pytest

from supervisor.embedded import Urls
from tests.support import databases, garbage, sessions
from tests.support.lending import Lender, Shared
from tests.support.server import Server, claim_root, release_root, shared_server
from tests.support.slowness import ROOT, machine, start_measuring

# An example that is slow on a busy machine is not wrong.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")

ROOT_LOCK = pytest.StashKey[int]()
MEASURING: pytest.StashKey["subprocess.Popen[bytes]"] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts its background jobs with SIGINT ignored, and their children would not hear Ctrl-C either.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.stash[ROOT_LOCK] = claim_root()
        config.stash[MEASURING] = start_measuring(Path(os.environ[ROOT]))


def pytest_unconfigure(config: pytest.Config) -> None:
    if ROOT_LOCK in config.stash:
        config.stash[MEASURING].communicate()
        release_root(config.stash[ROOT_LOCK])
        del config.stash[ROOT_LOCK]


def pytest_collection_finish() -> None:
    garbage.collect_between_tests()


def pytest_runtest_logfinish() -> None:
    garbage.test_ended()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections.append(("machine", machine()))
    return report


@pytest.fixture(scope="session")
def server() -> Server:
    """The server of this test run; its roles are shared by all tests."""
    return shared_server()


@pytest.fixture(scope="session")
async def lender(server: Server) -> AsyncIterator[Lender]:
    with sessions.keep():
        lending = Lender(server)
        yield lending
        await lending.close()


@pytest.fixture
async def database(request: pytest.FixtureRequest, server: Server, lender: Lender) -> AsyncIterator[Urls]:
    """A migrated database without rows of others: lent, or new for a test marked `fresh_database`."""
    fresh = request.node.get_closest_marker("fresh_database") is not None
    async with databases.fresh_database(server) if fresh else lender.lend() as urls:
        yield urls


@pytest.fixture(scope="module")
async def module_database(lender: Lender) -> AsyncIterator[Shared]:
    """A migrated database that the tests of a module share; `emptied_database` empties it for each."""
    async with lender.lend_to_module() as shared:
        yield shared


@pytest.fixture
async def emptied_database(module_database: Shared) -> Urls:
    await module_database.empty()
    return module_database.urls


@pytest.fixture
async def absent_database(server: Server) -> AsyncIterator[Urls]:
    """Addresses of a database that is not there yet."""
    name = databases.new_name()
    yield server.urls(name)
    await databases.drop(server, name)
