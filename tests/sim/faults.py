"""What goes wrong, drawn from the seed: some kinds of fault in each simulation, not all of them at once."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tests.sim.host import Host

if TYPE_CHECKING:
    from tests.sim.world import World

GAP_SECONDS: Final = 1.1
KINDS: Final = (
    "crash", "pause", "block", "cut", "deaf", "mute", "slow", "lossy", "delayed", "broken", "jump", "back",
    "resign", "sigterm", "drain", "cancel", "coma", "exile",
)  # fmt: skip
RARE: Final = ("failover",)
SHARP: Final = ("assign_runs", "assign_runs", "start_runs", "finish_runs", "make_next_attempts")


class Nemesis:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._draw = world.loop.random
        chosen = world.plan.faults
        swarm = [kind for kind in KINDS if self._draw.random() < 0.5] or list(KINDS)
        rare = [kind for kind in RARE if self._draw.random() < 0.25]
        self.kinds = list(chosen) if chosen is not None else swarm + rare
        if world.plan.scenario is not None:
            self.kinds = []
        self._healers: dict[int, tuple[str, Callable[[], None]]] = {}
        self._struck = 0

    def begin(self) -> None:
        if self.kinds:
            self._next()

    def heal(self) -> None:
        for number in list(self._healers):
            self._heal(number)

    def _next(self) -> None:
        self._world.loop.at(self._draw.expovariate(1 / GAP_SECONDS), self._strike)

    def _strike(self) -> None:
        if self._world.healing:
            return
        kind = self._draw.choice(self.kinds)
        getattr(self, f"_{kind}")(kind)
        self._next()

    def _target(self) -> Host | None:
        """The leader more often than others; never one that is down already."""
        able = [host for host in self._world.hosts if host.alive]
        leaders = [host for host in able if host.leads]
        if leaders and self._draw.random() < 0.4:
            return self._draw.choice(leaders)
        return self._draw.choice(able) if able else None

    def _seconds(self, most: float) -> float:
        """Short ones and long ones, and many near the bounds of the protocol."""
        timings = self._world.timings
        bounds = (timings.confirm_after, timings.self_stop, timings.leader_lease, timings.stop_bound)
        near = self._draw.choice((*bounds, 2 * timings.stop_bound))
        return min(
            most, self._draw.choice((self._draw.uniform(0.05, 2), near * self._draw.uniform(0.8, 1.4)))
        )

    def _last(self, kind: str, target: str, seconds: float, healer: Callable[[], None], **args: Any) -> None:
        self._struck += 1
        self._healers[self._struck] = kind, healer
        self._tell(kind, target, "start", seconds=round(seconds, 3), **args)
        self._world.loop.at(seconds, self._heal, self._struck)

    def _heal(self, number: int) -> None:
        if (found := self._healers.pop(number, None)) is not None:
            kind, healer = found
            healer()
            self._tell(kind, "", "stop")

    def _tell(self, kind: str, target: str, phase: str, **args: Any) -> None:
        world = self._world
        world.record.note(world.t, "nemesis", kind, target=target, phase=phase, **args)
        world.record.line("faults", world.t, fault=kind, target=target, phase=phase, args=args)

    def _crash(self, kind: str) -> None:
        if (host := self._target()) is not None:
            self._tell(kind, host.worker_id, "start")
            self._world.kill(host, "CRASH")

    def worker(self) -> Host | None:
        """One that is at work, and can be missed for long because another leads."""
        able = [host for host in self._world.hosts if host.executors and not host.leads]
        return self._draw.choice(able) if able and any(host.leads for host in self._world.hosts) else None

    def _long(self) -> float:
        return self._world.timings.stop_bound * self._draw.uniform(1.5, 2.5)

    def _coma(self, kind: str) -> None:
        self.freeze(kind, self.worker(), self._long(), loop_only=False)

    def _exile(self, kind: str) -> None:
        self.sever(kind, self.worker(), self._long(), requests=True, replies=True)

    def _some_time(self) -> float:
        return self._seconds(2 * self._world.timings.stop_bound)

    def freeze(self, kind: str, host: Host | None, seconds: float, *, loop_only: bool) -> None:
        if host is None or host.paused or host.lane.frozen:
            return
        host.freeze(loop_only=loop_only)
        self._last(kind, host.worker_id, seconds, lambda: host.thaw(loop_only=loop_only))

    def _pause(self, kind: str) -> None:
        self.freeze(kind, self._target(), self._some_time(), loop_only=False)

    def _block(self, kind: str) -> None:
        self.freeze(kind, self._target(), self._some_time(), loop_only=True)

    def sever(self, kind: str, host: Host | None, seconds: float, *, requests: bool, replies: bool) -> None:
        if host is None:
            return
        link = host.link
        link.requests_cut += requests
        link.replies_cut += replies

        def healer() -> None:
            link.requests_cut -= requests
            link.replies_cut -= replies
            if not link.requests_cut:
                self._world.network.deliver_held(link)

        self._last(kind, host.worker_id, seconds, healer)

    def _cut(self, kind: str) -> None:
        self.sever(kind, self._target(), self._some_time(), requests=True, replies=True)

    def _deaf(self, kind: str) -> None:
        self.sever(kind, self._target(), self._some_time(), requests=False, replies=True)

    def _mute(self, kind: str) -> None:
        self.sever(kind, self._target(), self._some_time(), requests=True, replies=False)

    def _set(self, kind: str, seconds: float, **values: float) -> None:
        host = self._target()
        if host is None:
            return
        link = host.link
        for name, value in values.items():
            setattr(link, name, value)

        def healer() -> None:
            for name in values:
                setattr(link, name, 0.0)

        self._last(kind, host.worker_id, seconds, healer, **values)

    def _slow(self, kind: str) -> None:
        self._set(kind, self._seconds(10), slow_seconds=self._draw.choice((0.05, 0.4, 1.2)))

    def _lossy(self, kind: str) -> None:
        self._set(kind, self._seconds(10), lose_replies=self._draw.choice((0.1, 0.5)))

    def _delayed(self, kind: str) -> None:
        seconds = self._draw.choice((1.0, 8.0, 15.0))
        self._set(kind, self._seconds(10), delay=self._draw.choice((0.1, 0.4)), delay_seconds=seconds)

    def _broken(self, kind: str) -> None:
        if (host := self._target()) is not None:
            self._tell(kind, host.worker_id, "start")
            for connection in list(host.connections):
                connection.broken()

    def _jump(self, kind: str) -> None:
        self.shift(kind, self._seconds(60) * self._draw.choice((1, 1, 5)))

    def _back(self, kind: str) -> None:
        self.shift(kind, -self._seconds(20))

    def shift(self, kind: str, seconds: float) -> None:
        self._world.database_offset += seconds
        self._world.jumped.append(seconds)
        self._tell(kind, "database", "start", seconds=round(seconds, 3))

    def _resign(self, kind: str) -> None:
        self._tell(kind, "leader", "start")
        self._world.execute("admin", "SELECT * FROM supervisor.request_resign('sim')")

    def _sigterm(self, kind: str) -> None:
        if (host := self._target()) is not None and not host.draining:
            self._tell(kind, host.worker_id, "start")
            host.terminate()

    def _drain(self, kind: str) -> None:
        host = self._target()
        known = "SELECT 1 FROM supervisor.worker WHERE worker_id = $1 AND state = 'active'"
        if host is not None and self._world.execute("admin", known, host.worker_id).rows:
            self._tell(kind, host.worker_id, "start")
            self._world.execute("admin", "SELECT * FROM supervisor.request_drain('sim', $1)", host.worker_id)

    def _cancel(self, kind: str) -> None:
        self._tell(kind, str(self._world.load.cancel_one()), "start")

    def _failover(self, kind: str) -> None:
        """A standby that lags behind is promoted: what was committed since is lost.

        Once, because the next would begin the quarantine again. Often it falls behind right after a
        statement, which is where a moment later nothing is as the database says.
        """
        world = self._world
        if world.past is not None or world.failovers or world.after:
            return
        after, lag = self._draw.choice((None, *SHARP)), self._draw.choice((0.5, 2.0, 5.0))
        self._tell(kind, "database", "start", after=after, lag=lag)
        if after is None:
            self.lag(lag)
        else:
            world.after[after] = lambda _host: self.lag(lag)

    def lag(self, seconds: float) -> None:
        self._tell("lag", "database", "start")
        self._world.remember()
        self._world.loop.at(seconds, self._promote)

    def _promote(self) -> None:
        if self._world.past is not None:
            self._tell("failover", "database", "stop")
            self._world.fail_over()
