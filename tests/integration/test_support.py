"""The test bed itself: two databases are apart, and each has what the migrations make."""

from pathlib import Path

import asyncpg

from supervisor.embedded import Urls
from tests.support import sessions
from tests.support.eventually import eventually
from tests.support.replica import replica


async def test_the_database_of_a_test_is_migrated_and_safe(database: Urls) -> None:
    connection = await asyncpg.connect(database.admin)
    try:
        assert await connection.fetchval("SELECT to_regnamespace('supervisor') IS NOT NULL")
        assert await connection.fetchval("SHOW fsync") == "on"
        assert await connection.fetchval("SHOW synchronous_commit") == "on"
    finally:
        await connection.close()


async def test_every_role_can_connect(database: Urls) -> None:
    for role, url in database.runtime().items():
        connection = await asyncpg.connect(url)
        assert await connection.fetchval("SELECT current_user") == f"tenure_{role}"
        await connection.close()


async def test_a_session_that_was_given_back_has_forgotten_its_settings(database: Urls) -> None:
    """Also those that it began with: with the triggers off, no test would see a guard."""
    sessions.forget(database.admin.rpartition("/")[2])
    async with sessions.connected(database.admin, session_replication_role="replica") as changed:
        assert await changed.fetchval("SHOW session_replication_role") == "replica"
    async with sessions.connected(database.admin) as again:
        assert again.get_server_pid() == changed.get_server_pid()
        assert await again.fetchval("SHOW session_replication_role") == "origin"


async def test_a_replica_of_a_test_leads_freezes_and_drains(database: Urls, tmp_path: Path) -> None:
    async with replica(database, tmp_path, ready="/readyz") as alone:

        async def leads() -> bool:
            leader = (await alone.status())["leader"]
            return leader is not None

        await eventually(leads)
        alone.freeze()
        await eventually(lambda: _state(alone.pid) == "T")
        alone.thaw()
        await eventually(alone.answers)
        assert await alone.stop() == 0, alone.output()
        assert not Path(f"/proc/{alone.pid}").exists()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
