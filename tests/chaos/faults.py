"""What can be done to a world, as values: started and stopped by `world.begin`, `end`, `during`.

Of processes: Kill Term Freeze Pause BlockLoop (stopping Kill or Term starts it again)
Of ways:      Cut Delay Loss Rate LinkDown
Of databases: Crash Stop FreezeServer Promote TerminateSessions DiskFull SlowSync
Of clocks:    ClockSet
"""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import asyncpg

from supervisor.clock import boottime
from supervisor.descendants import descendants
from supervisor.tether import tethered
from tests.chaos.clocks import set_clock
from tests.chaos.layer import NotHere, Way
from tests.chaos.place import fill
from tests.chaos.world import World

AWAKE_SECONDS: Final = 0.3
RECOVERY_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Kill:
    """SIGKILL to a replica; it is started again at the end."""

    target: str

    async def start(self, world: World) -> None:
        process = world.members[self.target].process
        assert process is not None
        await process.kill()

    async def stop(self, world: World) -> None:
        await world.start(self.target)


@dataclass(frozen=True)
class Term:
    """SIGTERM to a replica, which drains and ends; it is started again at the end."""

    target: str

    async def start(self, world: World) -> None:
        world.members[self.target].signal(signal.SIGTERM)

    async def stop(self, world: World) -> None:
        process = world.members[self.target].process
        assert process is not None
        await process.wait(40)
        await world.start(self.target)


@dataclass(frozen=True)
class Freeze:
    """SIGSTOP to a replica, SIGCONT at the end; what died meanwhile is started again."""

    target: str

    async def start(self, world: World) -> None:
        world.members[self.target].signal(signal.SIGSTOP)

    async def stop(self, world: World) -> None:
        world.members[self.target].signal(signal.SIGCONT)
        await world.start(self.target)


@dataclass(frozen=True)
class Pause:
    """SIGSTOP to a replica and all it started, as when its machine stands still; SIGCONT at the end."""

    target: str
    _stopped: list[int] = field(default_factory=list)

    async def start(self, world: World) -> None:
        replica = world.members[self.target].pid
        _stop(replica, self._stopped)
        for process in descendants(replica):
            _stop(process.pid, self._stopped)

    async def stop(self, world: World) -> None:
        # commands first, as chance could have it: a launcher that goes on ends at once what is over
        commands = {pid for one in world.executions() for pid in one.pids}
        for first in (True, False):
            for pid in self._stopped:
                if (pid in commands) == first:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
            await world.passed(boottime(), AWAKE_SECONDS)
        await world.start(self.target)


@dataclass(frozen=True)
class BlockLoop:
    """The event loop of a `blockable` replica sleeps, or holds the interpreter's lock, for so long."""

    target: str
    seconds: float
    hold: bool = False

    async def start(self, world: World) -> None:
        orders = world.home / f"orders-{self.target}"
        draft = orders.with_suffix(".new")
        draft.write_text(f"{'hold' if self.hold else 'sleep'} {self.seconds * world.stretch}")
        draft.replace(orders)

    async def stop(self, world: World) -> None:
        await world.start(self.target)


@dataclass(frozen=True)
class Cut:
    """What `source` sends to `target`, the replies, or both are dropped; nobody is told."""

    source: str
    target: str
    way: Way = "both"

    async def start(self, world: World) -> None:
        await world.layer.cut(self.source, self.target, self.way)

    async def stop(self, world: World) -> None:
        await world.layer.heal(self.source, self.target)


@dataclass(frozen=True)
class Delay:
    """Everything between the two comes later by seconds +- jitter. Needs Topology(relayed=True)."""

    source: str
    target: str
    seconds: float
    jitter: float = 0.0

    async def start(self, world: World) -> None:
        await world.layer.delay(self.source, self.target, self.seconds, self.jitter)

    async def stop(self, world: World) -> None:
        await world.layer.delay(self.source, self.target, 0.0, 0.0)


@dataclass(frozen=True)
class Loss:
    """So many percent of what arrives at a host are lost."""

    target: str
    percent: int

    async def start(self, world: World) -> None:
        await world.layer.loss(self.target, self.percent)

    async def stop(self, world: World) -> None:
        await world.layer.loss(self.target, 0)


@dataclass(frozen=True)
class Rate:
    """No more than so many kbit/s from and to a host."""

    target: str
    kbit: int

    async def start(self, world: World) -> None:
        await world.layer.rate(self.target, self.kbit)

    async def stop(self, world: World) -> None:
        await world.layer.rate(self.target, 0)


@dataclass(frozen=True)
class LinkDown:
    """A host's link is down: nothing from or to anybody."""

    target: str

    async def start(self, world: World) -> None:
        await world.layer.link(self.target, up=False)

    async def stop(self, world: World) -> None:
        await world.layer.link(self.target, up=True)


@dataclass(frozen=True)
class Crash:
    """Immediate shutdown of a database (`power`: SIGKILL instead); started again at the end."""

    target: str = "pg1"
    power: bool = False

    async def start(self, world: World) -> None:
        await world.postgres[self.target].end(signal.SIGKILL if self.power else signal.SIGQUIT)

    async def stop(self, world: World) -> None:
        if not world.postgres[self.target].alive:
            await world.postgres[self.target].start()


@dataclass(frozen=True)
class Stop:
    """Fast shutdown of a database; started again at the end."""

    target: str = "pg1"

    async def start(self, world: World) -> None:
        await world.postgres[self.target].stop()

    async def stop(self, world: World) -> None:
        await world.postgres[self.target].start()


@dataclass(frozen=True)
class FreezeServer:
    """SIGSTOP to a database and its backends."""

    target: str = "pg1"

    async def start(self, world: World) -> None:
        world.postgres[self.target].freeze()

    async def stop(self, world: World) -> None:
        world.postgres[self.target].thaw()


@dataclass(frozen=True)
class Promote:
    """A standby becomes the primary of a new timeline; the observer follows. Not undone."""

    target: str = "pg2"

    async def start(self, world: World) -> None:
        connection = await asyncpg.connect(world.postgres[self.target].urls.admin)
        await connection.execute("SELECT pg_promote(true, 30)")
        await connection.close()
        world.primary = self.target
        world.see.use(world.urls.admin)

    async def stop(self, _world: World) -> None:
        """There is no way back."""


@dataclass(frozen=True)
class TerminateSessions:
    """Every so often some sessions of the replicas are ended, chosen at random."""

    target: str = "pg1"
    every_seconds: float = 0.2
    sessions: int = 2
    _running: list["asyncio.Task[None]"] = field(default_factory=list)

    async def start(self, world: World) -> None:
        self._running.append(asyncio.create_task(self._storm(world)))

    async def _storm(self, world: World) -> None:
        end = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE application_name LIKE 'tenure/%' ORDER BY random() LIMIT $1"""
        while True:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                ended = await world.see.rows(end, self.sessions)
                world.figures["sessions_ended"] = world.figures.get("sessions_ended", 0) + len(ended)
            await asyncio.sleep(self.every_seconds * world.stretch)

    async def stop(self, _world: World) -> None:
        task = self._running.pop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True)
class DiskFull:
    """PostgreSQL's file system has no room left. Needs Topology(disk_bytes=...) and root."""

    target: str = "pg1"

    async def start(self, world: World) -> None:
        fill(world.postgres[self.target].data / "filler")

    async def stop(self, world: World) -> None:
        server = world.postgres[self.target]
        (server.data / "filler").unlink()
        # a server that met the full disk while it recovered may stay there, with room or without
        if not await server.recovers(RECOVERY_SECONDS):
            if server.alive:
                await server.end(signal.SIGQUIT)
            await server.start()


@dataclass(frozen=True)
class SlowSync:
    """Every fdatasync of a database takes so much longer, or fails once with an error (strace)."""

    target: str = "pg1"
    seconds: float = 0.5
    error: str = ""
    _tracers: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    async def start(self, world: World) -> None:
        injected = f"error={self.error}:when=1" if self.error else f"delay_exit={int(self.seconds * 1e6)}"
        if not Path("/usr/bin/strace").exists():
            raise NotHere("strace is not installed; on Debian: apt-get install strace")
        command = ["/usr/bin/strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"]
        command += ["-e", f"inject=fdatasync:{injected}"]
        for pid in world.postgres[self.target].pids():
            command += ["-p", str(pid)]
        self._tracers.append(subprocess.Popen(tethered(command), start_new_session=True))

    async def stop(self, world: World) -> None:
        tracer = self._tracers.pop()
        tracer.terminate()
        await asyncio.to_thread(tracer.wait)
        await Crash(self.target).stop(world)


@dataclass(frozen=True)
class ClockSet:
    """A host's clock is moved (`+3600`) or goes at another rate (`+0 x0.9`); true again at the end."""

    target: str
    to: str

    async def start(self, world: World) -> None:
        set_clock(world.home, self.target, self.to)

    async def stop(self, world: World) -> None:
        set_clock(world.home, self.target, "+0")


def _stop(pid: int, stopped: list[int]) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        stopped.append(pid)
