"""One simulation: hosts, load, faults, then peace, and what must hold at its end."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import asyncpg
from pydantic import SecretStr

from supervisor.config import Settings
from tests.sim import verdicts
from tests.sim.database import Answer, Database, instant
from tests.sim.faults import Nemesis
from tests.sim.host import Host
from tests.sim.load import Load
from tests.sim.loop import Loop
from tests.sim.network import Network
from tests.sim.past import Past
from tests.sim.plan import Plan
from tests.sim.record import Record
from tests.sim.scenarios import SCENARIOS
from tests.sim.witness import Witness

TIMINGS: Final = {
    "leader_lease_seconds": 6, "renew_deadline_seconds": 3, "renew_retry_seconds": 0.5,
    "heartbeat_seconds": 0.5, "confirm_after_seconds": 1.5, "self_stop_seconds": 4, "kill_seconds": 1,
    "stop_bound_seconds": 7,
}  # fmt: skip
LOOK_SECONDS: Final = 1.0
VIOLATIONS: Final = 20


class World:
    def __init__(self, database: Database, plan: Plan) -> None:
        self.plan = plan
        self.database = database
        self.settings = Settings(
            database_url=SecretStr(database.urls.control), slots=3, drain_seconds=2, **TIMINGS  # type: ignore[arg-type]
        )  # fmt: skip
        self.timings = self.settings.timings
        self.reassign_seconds = 3.0
        self.loop = Loop(random.Random(plan.seed))  # noqa: S311  to be repeated is the point
        self.loop.on_step = self._count_steps
        self.record = Record()
        self.violations: list[str] = []
        self.database_offset = 0.0
        self.jumped: list[float] = []
        self.failovers = 0
        self.past: Past | None = None
        self.after: dict[str, Callable[[Host], None]] = {}
        """What happens once, right after the next statement of that name that did something."""
        self.healing = False
        self.healed_at = 0.0
        self.statements = 0
        self._last = 0.0
        self._pids = 0
        self._boots = 0
        self._all: list[Host] = []
        self.hosts: list[Host] = []
        self.witness = Witness(self)
        self.network = Network(self)
        self.load = Load(self)
        self.nemesis = Nemesis(self)
        self._progress = verdicts.Progress(self)
        self._over = self.loop.create_future()

    @property
    def t(self) -> float:
        return self.loop.now

    @property
    def instant(self) -> float:
        """Never twice the same, so that an order by time is an order."""
        self._last = max(self._last + 1e-6, self.loop.now)
        return self._last + self.database_offset

    def execute(self, role: str, sql: str, *args: Any) -> Answer:
        self.statements += 1
        return self.database.run(role, instant(self.instant), sql, *args)

    def look(self, sql: str) -> Sequence[asyncpg.Record]:
        """Looking changes nothing, not even what the next statement takes for the time."""
        return self.database.run("admin", instant(self._last + self.database_offset), sql).rows

    def executed(self, host: Host, name: str, rows: int) -> None:
        """After every statement; a replay wants to know which one it was."""
        if rows and name in self.after:
            self.after.pop(name)(host)
        if self.plan.often and not self._over.done():
            for what in verdicts.of_database(self):
                self.violate(what)

    def next_pid(self) -> int:
        self._pids += 1
        return self._pids

    def note(self, who: str, what: str, **facts: Any) -> None:
        self.record.note(self.t, who, what, **facts)

    def violate(self, what: str, **facts: Any) -> None:
        """The first one ends the simulation, unless its whole history is wanted."""
        if not self.record.closed:
            self.note("VIOLATION", what, **facts)
            self.violations.append(str(self.record.events[-1]))
            if self.plan.directory is None or len(self.violations) >= VIOLATIONS:
                self.finish()

    def finish(self) -> None:
        self.record.closed = True
        if not self._over.done():
            self._over.set_result(None)

    def boot(self, place: str) -> None:
        if self._over.done():
            return
        self._boots += 1
        host = Host(self, place, self._boots)
        self.hosts.append(host)
        self._all.append(host)
        self.note(host.worker_id, "boots")

    def kill(self, host: Host, why: str) -> None:
        self.note(host.worker_id, "dies", why=why)
        self.record.line("deaths", self.t, host=host.place, pid=0, code=-9)
        host.die()
        self._gone(host)

    def left(self, host: Host) -> None:
        self.note(host.worker_id, "left")
        host.die()
        self._gone(host)

    def remember(self) -> None:
        self.past = Past(self)

    def fail_over(self) -> None:
        if self.past is not None:
            self.past.restore()
            self.past = None
            self.failovers += 1
            self.witness.failed_over()
            self.load.acknowledged.clear()
            for host in list(self.hosts):
                for connection in list(host.connections):
                    connection.broken()

    async def play(self) -> None:
        set_to = (
            "UPDATE supervisor.setting SET value = to_jsonb($1::float8) WHERE name = 'reassign_after_seconds'"
        )
        self.execute("admin", set_to, self.reassign_seconds)
        self.load.define()
        if self.plan.scenario is None:
            self.load.begin()
            self.nemesis.begin()
        else:
            SCENARIOS[self.plan.scenario](self)
        for number in range(self.plan.replicas):
            self.boot(f"r{number + 1}")
        self.loop.at(self.plan.fault_seconds, self._heal)
        self.loop.at(LOOK_SECONDS, self._look)
        await self._over

    def _gone(self, host: Host) -> None:
        self.hosts.remove(host)
        self.loop.at(0.1 if self.healing else self.loop.random.uniform(0.1, 6), self.boot, host.place)

    def _heal(self) -> None:
        self.after.clear()
        if self.past is not None:
            self.fail_over()
        self.healing = True
        self.healed_at = self.t
        self._progress = verdicts.Progress(self)
        self.note("nemesis", "peace")
        self.nemesis.heal()

    def _look(self) -> None:
        """Now and then at the whole database, and in peace whether everything has ended."""
        if self._over.done():
            return
        for what in verdicts.of_database(self):
            self.violate(what)
        if self.healing:
            if verdicts.quiet(self):
                for what in verdicts.of_end(self):
                    self.violate(what)
                self.finish()
            else:
                for what in self._progress.complaints():
                    self.violate(what)
        self.loop.at(LOOK_SECONDS, self._look)

    def _count_steps(self) -> None:
        if self.plan.steps is not None and self.loop.steps >= self.plan.steps:
            self.finish()

    def bury(self) -> None:
        """End every task; the network answers nobody any more."""
        self.network.closed = True
        self.loop.on_step = bool
        for host in self._all:
            host.rise_to_be_buried()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=60))
        self.loop.close()
