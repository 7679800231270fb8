"""A PostgreSQL server on a host: a primary, or a standby that streams from one.

It runs as an unprivileged account where this process is root. `crash` is an immediate shutdown (no
checkpoint, recovery at the next start), `stop` a fast one; as a standby it can be promoted (faults.Promote).
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import asyncpg

from supervisor.cluster import ENVIRONMENT, SETTINGS
from supervisor.embedded import USERS, Urls
from tests.chaos.layer import Layer
from tests.chaos.place import mount_tmpfs
from tests.chaos.processes import Process, Processes
from tests.chaos.template import Template
from tests.support.eventually import eventually
from tests.support.slowness import patient

PORT: Final = 5432
START_SECONDS: Final = 60
TUNED: Final = {
    "max_connections": "400",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
    "wal_keep_size": "512MB",
    "hot_standby": "on",
    "wal_receiver_timeout": "5s",
    "wal_sender_timeout": "5s",
    "track_commit_timestamp": "on",
}


@dataclass
class Postgres:
    host: str
    home: Path
    layer: Layer
    processes: Processes
    template: Template
    settings: Mapping[str, str]
    port: int
    env: Mapping[str, str] = field(default_factory=dict)
    process: Process | None = None

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def urls(self) -> Urls:
        """As the observer sees it."""
        return self.template.urls((self.layer.address(self.host), self.port))

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    async def make(self, primary: tuple[str, int] | None = None, disk_bytes: int = 0) -> None:
        """Copy the template; with the address of a primary, as its standby."""
        copying = asyncio.ensure_future(asyncio.to_thread(self._copy, disk_bytes))
        try:
            await asyncio.shield(copying)
        finally:
            # a thread goes on when its waiter is cancelled, and would copy into what is being removed
            await asyncio.wait([copying])
        settings = {**SETTINGS, **TUNED, **self.settings, "port": str(self.port), "cluster_name": self.host}
        settings["listen_addresses"] = self.layer.address(self.host)
        if primary is not None:
            secret = self.template.passwords["admin"]
            settings["primary_conninfo"] = (
                f"host={primary[0]} port={primary[1]} user={USERS['admin']} password={secret} "
                f"application_name={self.host} connect_timeout=2"
            )
            (self.data / "standby.signal").touch()
        lines = [f"{name} = '{value}'\n" for name, value in settings.items()]
        (self.data / "postgresql.conf").write_text("".join(lines))
        self._own(self.data / "postgresql.conf", self.data / "standby.signal")

    def _copy(self, disk_bytes: int) -> None:
        self.home.mkdir(mode=0o711, exist_ok=True)
        self.home.chmod(0o711)
        if disk_bytes:
            mount_tmpfs(self.data, disk_bytes)
        shutil.copytree(self.template.data, self.data, symlinks=True, dirs_exist_ok=True)
        self._own(self.data, *self.data.rglob("*"))
        self.data.chmod(0o700)

    def _own(self, *paths: Path) -> None:
        if self.template.account is not None:
            for path in paths:
                if path.exists():
                    self.template.account.own(path)

    async def start(self) -> None:
        """Return when it answers. The last backends of a killed server may still be leaving: try again."""
        for turn in range(20):
            (self.data / "postmaster.pid").unlink(missing_ok=True)
            # only the server itself: what changes the user before it must not see a faked clock
            settings = [f"{name}={value}" for name, value in self.env.items()]
            command = [
                "/usr/bin/env",
                *settings,
                str(self.template.binaries / "postgres"),
                "-D",
                str(self.data),
            ]
            self.process = await self.processes.start(
                self.host,
                command,
                log=self.home / "log",
                env=ENVIRONMENT,
                account=self.template.account,
            )
            await eventually(
                self._settled, timeout=START_SECONDS, what=f"{self.host} to start", interval=0.02
            )
            if self.process.alive:
                return
            assert "in use" in self.process.tail(8), self.process.tail()
            assert turn < 19, self.process.tail()
            await asyncio.sleep(0.3)

    async def recovers(self, within: float) -> bool:
        """By itself, so that it takes connections: its file says `ready` all through a crash."""

        async def decided() -> bool:
            with suppress(OSError, asyncpg.PostgresError, TimeoutError):
                connection = await asyncpg.connect(self.urls.admin, timeout=patient(2))
                await connection.close()
                return True
            return not self.alive

        with suppress(AssertionError):
            await eventually(decided, timeout=within, what=f"{self.host} to recover")
            return self.alive
        return False

    def _settled(self) -> bool:
        if not self.alive or self.process is None:
            return True
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        ours = len(lines) > 7 and lines[0].strip() == str(self.process.pid)
        return ours and lines[7].startswith(("ready", "standby"))

    async def end(self, signum: signal.Signals) -> None:
        """SIGINT: fast; SIGQUIT: immediate; SIGKILL: as if the machine lost power."""
        if self.process is not None:
            self.thaw()
            self.process.signal(signum)
            await self.process.wait(60)

    async def crash(self) -> None:
        await self.end(signal.SIGQUIT)

    async def stop(self) -> None:
        await self.end(signal.SIGINT)

    def pids(self) -> list[int]:
        """The server and its children."""
        if self.process is None or not self.process.alive:
            return []
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [self.process.pid, *map(int, children)]

    def freeze(self) -> None:
        for pid in self.pids():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
