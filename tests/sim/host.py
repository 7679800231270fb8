"""A host with one replica on it: its lanes, its clock, its way to the database, and its death.

The replica is the project's own, less what is bound to a real process: signals and HTTP are left out, the
thread of beats is a second lane, and the kernel's timer is a timer of the world that kills the host.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, uuid5

import anyio

from supervisor.actor import Actor
from supervisor.identity import Identity
from supervisor.pulse import Pulse
from supervisor.replica import Replica
from supervisor.urls import RuntimeUrls
from tests.sim.loop import LANE, HostClock
from tests.sim.network import Connection, Link
from tests.sim.work import Executor, handle

if TYPE_CHECKING:
    from tests.sim.world import World


class Host(HostClock):
    def __init__(self, world: "World", place: str, boot: int) -> None:
        draw = world.loop.random
        super().__init__(draw.uniform(100, 100_000), draw.uniform(0.995, 1.005))
        self.world = world
        self.place = place
        self.worker_id = f"{place}.{boot}"
        self.lane = self.main = world.loop.add_lane(self.worker_id, self)
        self.pulse_lane = world.loop.add_lane(f"{self.worker_id}/pulse", self)
        self.link = Link()
        self.connections: list[Connection] = []
        self.executors: list[Executor] = []
        self.alive = True
        self.paused = False
        self.replica: SimReplica | None = None
        self.task: asyncio.Task[None] = world.loop.create_task(
            self._live(), context=world.loop.in_lane(self.lane)
        )

    @property
    def leads(self) -> bool:
        election = None if self.replica is None else self.replica.election
        return self.alive and election is not None and election.tenure is not None

    @property
    def draining(self) -> bool:
        return self.replica is not None and self.replica._drain_wanted.is_set()

    def freeze(self, *, loop_only: bool = False) -> None:
        self.lane.frozen += 1
        if not loop_only:
            self.pulse_lane.frozen += 1
            self.paused = True

    def thaw(self, *, loop_only: bool = False) -> None:
        if self.alive:
            self.lane.frozen -= 1
            if not loop_only:
                self.pulse_lane.frozen -= 1
                self.paused = False

    def terminate(self) -> None:
        """SIGTERM."""
        if self.replica is not None:
            self.world.loop.in_lane(self.lane).run(self.replica._drain_wanted.set)

    def die(self) -> None:
        """SIGKILL: nothing of it runs again, whatever it was about to do."""
        self.alive = False
        self.world.loop.remove_lane(self.lane)
        self.world.loop.remove_lane(self.pulse_lane)
        for executor in list(self.executors):
            executor.orphaned()

    def rise_to_be_buried(self) -> None:
        """After the end, so that every task can be cancelled and ends."""
        self.lane.frozen = self.pulse_lane.frozen = 0
        if not self.alive:
            self.world.loop.lanes += [self.lane, self.pulse_lane]

    async def _live(self) -> None:
        actor = Actor(domain="command", handle=handle)
        urls = self.world.database.urls
        addresses = RuntimeUrls(urls.control, urls.worker, urls.control, urls.maintenance)
        self.replica = SimReplica(self.world.settings, addresses, {"command": actor})
        try:
            await self.replica.run()
        except Exception as error:  # noqa: BLE001  whatever it is, a replica must not die of it
            self.world.violate("a replica died of an error", worker=self.worker_id, error=repr(error))
        self.world.left(self)


class SimReplica(Replica):
    async def _serve_http(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        task_status.started()

    async def _heed_signals(self) -> None:
        """Host.terminate does."""

    async def _measure_loop_lag(self) -> None:
        """There is none."""

    async def _keep_figures(self) -> None:
        """Nobody looks."""


class SimPulse(Pulse):
    """Beats in a lane of its own instead of a thread."""

    _task: asyncio.Task[None]

    def start(self) -> None:
        host = here()
        loop = host.world.loop
        self._task = loop.create_task(self._main(), context=loop.in_lane(host.pulse_lane))

    def stop(self) -> Any:
        """Waited for as long as a thread is (Loop.run_in_executor takes the future for the answer)."""
        self._stopping.set()
        return asyncio.ensure_future(asyncio.wait({self._task}, timeout=self.timings.heartbeat * 2 + 2))


@dataclass
class DeadManTwin:
    """The kernel's timer: it also kills a host that is stopped."""

    host: Host
    armed: int = 0

    def arm(self, deadline_boottime: float) -> None:
        self.armed += 1
        loop = self.host.world.loop
        seconds = max(0.0, self.host.shared(deadline_boottime) - loop.now)
        loop.at(seconds, self._fire, self.armed)

    def disarm(self) -> None:
        self.armed += 1

    def _fire(self, armed: int) -> None:
        if armed == self.armed and self.host.alive and "dead_man" not in self.host.world.plan.rules_off:
            self.host.world.kill(self.host, "DEAD_MAN")


def here() -> Host:
    """The host whose code is running."""
    host = LANE.get().host
    assert isinstance(host, Host)
    return host


def identity() -> Identity:
    name = here().worker_id
    return Identity(name, uuid5(NAMESPACE_OID, name))


def dead_man() -> DeadManTwin:
    return DeadManTwin(here())
