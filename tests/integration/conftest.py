"""Fixtures of the migration tests: roles are the cluster's, so these have clusters of their own."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.place import Place, empty
from tests.support.server import Server, own_root, start_server

INSTALLED = Path("/usr/lib/postgresql")
VERSIONS = ["embedded", *(major for major in ("15", "16", "17") if (INSTALLED / major / "bin").is_dir())]


@pytest.fixture(scope="module", params=VERSIONS)
def bare_server(request: pytest.FixtureRequest) -> Iterator[tuple[Server, Path]]:
    """A server of each major version at hand; every statement is in its log."""
    binaries = INSTALLED / request.param / "bin"
    if request.param != "embedded" and not binaries.is_dir():
        pytest.skip(f"PostgreSQL {request.param} is not installed in {binaries}")
    root = own_root()
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("TENURE_TEST_PG_BIN", raising=False)
        if request.param != "embedded":
            environment.setenv("TENURE_TEST_PG_BIN", str(binaries))
        cluster, server = start_server(root, {"log_statement": "all", "fsync": "off"})
    yield server, root / "postgresql.log"
    cluster.stop()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
async def place(bare_server: tuple[Server, Path]) -> AsyncIterator[Place]:
    server, log = bare_server
    yield Place(server, log)
    await empty(server)
