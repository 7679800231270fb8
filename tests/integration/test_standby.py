"""A replica's questions asked of a standby: they are answered, and nothing is decided there."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from supervisor.embedded import Urls
from tests.support.command_line import command_line
from tests.support.databases import fresh_database
from tests.support.place import connected, value
from tests.support.replica import replica
from tests.support.server import own_root, start_server


@pytest.fixture
async def standby() -> AsyncIterator[Urls]:
    """A server that was stopped and started again as one that waits for its primary."""
    root = own_root()
    cluster, server = start_server(root)
    try:
        async with fresh_database(server) as urls:
            cluster.stop()
            (root / "data" / "standby.signal").touch()
            cluster.start(server.port)
            yield urls
            cluster.stop()
            (root / "data" / "standby.signal").unlink()
            cluster.start(server.port)
    finally:
        cluster.stop()
        shutil.rmtree(root, ignore_errors=True)


async def test_a_standby_answers_and_decides_nothing(
    standby: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await value(standby.control, "SELECT timeline FROM supervisor.server_identity()") == 1
    async with connected(standby.control) as control:
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await control.fetchrow("SELECT * FROM supervisor.acquire('w1', 15, 30, 0, 0, 0)")
    answer = await command_line(standby, monkeypatch, tmp_path)("status", "--json")
    assert answer.json()["leader"] is None

    async with replica(standby, tmp_path) as one:
        assert (await one.get("/status")).json()["replicas"] == []
        assert (await one.get("/runs")).status_code == 200
        assert (await one.get("/readyz")).status_code == 503
        assert one.returncode is None
