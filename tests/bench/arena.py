"""Where all contestants meet: one PostgreSQL with everything safe switched on, one Redis, fresh databases."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg

from supervisor.embedded import Urls
from tests.bench.peers import Peers
from tests.support import databases
from tests.support.redis import RedisServer
from tests.support.server import Server, start_server
from tests.support.slowness import ROOT

SETTINGS: Final = {"shared_buffers": "512MB", "max_wal_size": "4GB", "checkpoint_timeout": "30min"}
MEMORY: Final = Path("/dev/shm")  # noqa: S108  mkdtemp makes the name


@dataclass(frozen=True)
class Arena:
    server: Server
    data: Path
    peers: Peers
    redis: RedisServer | None = None

    @property
    def postmaster(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    @property
    def redis_pid(self) -> int:
        assert self.redis is not None
        assert self.redis._process is not None
        return self.redis._process.pid

    @asynccontextmanager
    async def tenure(self) -> AsyncIterator[Urls]:
        """A migrated database of this project, checkpointed so that nobody pays for another's writes."""
        async with databases.fresh_database(self.server) as urls:
            await databases.run_as_admin(self.server, ["CHECKPOINT"])
            yield urls

    @asynccontextmanager
    async def empty(self) -> AsyncIterator[str]:
        name = databases.new_name()
        await databases.run_as_admin(self.server, [f'CREATE DATABASE "{name}"', "CHECKPOINT"])
        try:
            yield self.server.urls(name).admin
        finally:
            await databases.drop(self.server, name)

    async def version(self) -> str:
        connection = await asyncpg.connect(self.server.urls(databases.SYSTEM).admin)
        try:
            return str(await connection.fetchval("SHOW server_version"))
        finally:
            await connection.close()


@contextmanager
def opened(peers: Peers, place: Path | None) -> Iterator[Arena]:
    """Servers of this run's own, in memory where there is room and nothing else was asked for."""
    where = place or (MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir()))
    root = Path(tempfile.mkdtemp(prefix="tenure-bench-", dir=where))
    root.chmod(0o711)
    os.environ[ROOT] = str(root)
    cluster, server = start_server(root, SETTINGS)
    redis = RedisServer("--appendonly", "no") if peers.known else None
    try:
        if redis is not None:
            redis.start()
        yield Arena(server, root / "data", peers, redis)
    finally:
        if redis is not None:
            redis.kill()
        cluster.stop()
        shutil.rmtree(root, ignore_errors=True)
        del os.environ[ROOT]
