"""All of a scenario's hosts, running: what a scenario is written in terms of.

    leader = await world.leader()
    async with world.during(Freeze(leader.host)):
        await world.see.led_after(epoch, TAKE_OVER)

`world.see` looks at the database, `world.begin/end/during` do faults and undo them (each is recorded),
`world.figure` keeps a number for the table. Everything that a world started ends with it.

On a crowded machine a world is slower by `world.stretch`: the timings of its replicas, its commands, its
waits and what it lets pass are that much longer. A scenario compares an instant with the timings times it.
What may not take longer than so many seconds is compared with these times `world.see.crowding`.
"""

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

from supervisor.clock import boottime
from supervisor.embedded import Urls
from tests.chaos import clocks
from tests.chaos.executions import Execution, executions, overlaps
from tests.chaos.guards import take_out_of
from tests.chaos.journal import Journal
from tests.chaos.layer import Layer
from tests.chaos.member import Member
from tests.chaos.observer import Observer
from tests.chaos.place import Place
from tests.chaos.postgres import PORT, Postgres
from tests.chaos.processes import Processes
from tests.chaos.servers import start_pgbouncer, start_redis, start_sink
from tests.chaos.template import Template
from tests.chaos.topology import Topology
from tests.support.replica import timings
from tests.support.replicas import REASSIGN_AFTER, TAKE_OVER
from tests.support.slowness import stretch
from tests.support.variants import ORDERS

START_SECONDS: Final = 60
STARTS: Final = 5


class Fault(Protocol):
    """Something done to a world that can be undone; a frozen dataclass, so that it can be written down."""

    @property
    def target(self) -> str: ...

    async def start(self, world: "World") -> None: ...

    async def stop(self, world: "World") -> None: ...


class World:
    def __init__(self, topology: Topology, layer: Layer, place: Place, guards_off: Sequence[str]) -> None:
        self.topology = topology
        self.layer = layer
        self.guards_off = tuple(guards_off)
        self.home = place.path
        self.history = place.path / "history"
        self.history.mkdir()
        self.stretch = stretch()
        self.figures: dict[str, float] = {}
        self.doubts: list[str] = []
        self.healed_at = 0.0
        self.members: dict[str, Member] = {}
        self._starting: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.postgres: dict[str, Postgres] = {}
        self.primary = "pg1"
        self.faults: list[Fault] = []
        self.sink_port = self.redis_port = self.pgbouncer_port = 0
        self._nemesis = Journal(self.history / "faults.jsonl")
        self._deaths = Journal(self.history / "deaths.jsonl")
        self.processes = Processes(layer, self._deaths, self.home)
        self.see = Observer("", self.stretch)

    # making it

    async def make(self, template: Template) -> None:
        self.layer.open(self.topology.hosts)
        await self._start_databases(template)
        self.see.use(self.postgres["pg1"].urls.admin)
        save = "SELECT supervisor.save_setting('chaos', 'reassign_after_seconds', $1::jsonb)"
        await self.see.rows(save, str(REASSIGN_AFTER * self.stretch))
        if self.guards_off:
            connection = await self.see.connection()
            await take_out_of(connection, self.guards_off)
            await connection.close()
        self.sink_port = await start_sink(self)
        if self.topology.redis:
            self.redis_port = await start_redis(self)
        if self.topology.pgbouncer:
            self.pgbouncer_port = await start_pgbouncer(self)
        for host in self.topology.replica_hosts:
            variant = self.topology.variants.get(host, "plain")
            env = await self._environment(host)
            self.members[host] = Member(host, self.layer, self.processes, env, variant)
        await asyncio.gather(*(self.start(host) for host in self.topology.replica_hosts))

    async def _start_databases(self, template: Template) -> None:
        topology = self.topology
        settings = dict(topology.postgres)
        if topology.synchronous:
            settings["synchronous_standby_names"] = "pg2"
        for host in ("pg1", "pg2") if topology.standby else ("pg1",):
            port = self.layer.port(PORT)
            clock = clocks.environment(self.home, host, topology.clocks)
            home = self.home / host
            server = Postgres(host, home, self.layer, self.processes, template, settings, port, clock)
            self.postgres[host] = server
            way = await self.layer.way("pg2", "pg1", self.postgres["pg1"].port) if host == "pg2" else None
            await server.make(way, topology.disk_bytes if host == "pg1" else 0)
        # the standby first: a synchronous primary would wait for it
        await asyncio.gather(*(server.start() for server in self.postgres.values()))

    async def _environment(self, host: str) -> dict[str, str]:
        """What a replica on this host is told: its ways to the servers."""
        relayed = self.topology.relayed
        ways = [
            await self.layer.way(host, name, server.port, relayed=relayed)
            for name, server in self.postgres.items()
        ]
        direct = self.postgres["pg1"].template.urls(*ways)
        pooled, env = direct, dict(self.topology.env)
        if self.topology.pgbouncer:
            way = await self.layer.way(host, "pgb", self.pgbouncer_port, relayed=relayed)
            pooled = self.postgres["pg1"].template.urls(way)
            env["TENURE_POOLER"] = "transaction"
        if self.topology.redis:
            address, port = await self.layer.way(host, "redis", self.redis_port, relayed=relayed)
            env["TENURE_REDIS_URL"] = f"redis://{address}:{port}/0"
        sink = await self.layer.way(host, "sink", self.sink_port)
        longer = {
            name: str(float(value) * self.stretch) for name, value in env.items() if name.endswith("_SECONDS")
        }
        return {
            **timings(self.stretch),
            "TENURE_DATABASE_URL": pooled.control,
            "TENURE_WORKER_DATABASE_URL": pooled.worker,
            "TENURE_LISTEN_DATABASE_URL": direct.control,
            "TENURE_STATE_DIR": str(self.home / f"state-{host}"),
            "TENURE_COMMAND_USER": str(os.geteuid()),
            ORDERS: str(self.home / f"orders-{host}"),
            "TENURE_SLOTS": str(self.topology.slots),
            "CHAOS_CALLS": str(self.history / f"calls-{host}.jsonl"),
            "CHAOS_EFFECTS": str(self.history / "effects.jsonl"),
            "CHAOS_SINK": f"{sink[0]}:{sink[1]}",
            "CHAOS_GUARDS": " ".join(self.guards_off),
            "CHAOS_STRETCH": str(round(100 * self.stretch)),
            **clocks.environment(self.home, host, self.topology.clocks),
            **env,
            **longer,
        }

    @property
    def urls(self) -> Urls:
        """Of the primary, as the observer sees it."""
        return self.postgres[self.primary].urls

    # replicas

    async def start(self, host: str) -> Member:
        """Its process, if it has none, until its first beat is in the database."""
        member = self.members[host]
        async with self._starting[host]:
            if not member.alive:
                await self._start(member)
        return member

    async def _start(self, member: Member) -> None:
        """As an orchestrator would: one that ends because the database is out of its reach is tried again."""
        starts = 0

        async def known() -> bool:
            nonlocal starts
            if not member.alive:
                if starts == STARTS and member.process is not None:
                    raise RuntimeError(f"{member.host} ended {starts} times:\n{member.process.tail()}")
                starts += 1
                await member.start(self.home / f"{member.host}.log")
            found = "SELECT count(*) FROM supervisor.worker WHERE worker_id = $1"
            return bool(await self.see.value(found, member.worker_id))

        await self.see.until(known, within=START_SECONDS, what=f"the first beat of {member.host}")

    def member(self, worker_id: str | None) -> Member | None:
        return next((one for one in self.members.values() if one.worker_id == worker_id), None)

    async def leader(self, within: float = TAKE_OVER) -> Member:
        """Who leads, and is one of this world's living replicas."""

        async def leads() -> Member | None:
            member = self.member(await self.see.holder())
            return member if member is not None and member.alive else None

        leader: Member = await self.see.until(leads, within=within, what="a leader")
        return leader

    def others(self, *not_these: Member) -> list[Member]:
        return [one for one in self.members.values() if one not in not_these and one.alive]

    # faults

    async def begin(self, fault: Fault) -> None:
        self._note(fault, "start")
        self.faults.append(fault)
        await fault.start(self)

    async def end(self, fault: Fault) -> None:
        await fault.stop(self)
        self.faults.remove(fault)
        self._note(fault, "stop")

    @asynccontextmanager
    async def during(self, *faults: Fault) -> AsyncIterator[None]:
        for fault in faults:
            await self.begin(fault)
        yield
        for fault in reversed(faults):
            await self.end(fault)

    async def heal(self) -> None:
        """Whatever is still wrong is undone, and every replica runs."""
        for fault in reversed(self.faults[:]):
            await self.end(fault)
        await asyncio.gather(*(self.start(host) for host in self.members))
        self.healed_at = boottime()

    def _note(self, fault: Fault, phase: str) -> None:
        args = {name: value for name, value in vars(fault).items() if not name.startswith("_")}
        self._nemesis.write(fault=type(fault).__name__.lower(), target=fault.target, phase=phase, args=args)

    # what happened

    def executions(self) -> list[Execution]:
        return executions(self.history / "effects.jsonl")

    def overlaps(self) -> list[str]:
        return overlaps(self.history / "effects.jsonl")

    def figure(self, name: str, value: float) -> None:
        """Kept for the table; of several the greatest."""
        self.figures[name] = round(max(value, self.figures.get(name, value)), 2)

    async def passed(self, since: float, seconds: float) -> None:
        """Until so many seconds of this world after an instant of CLOCK_BOOTTIME."""
        await asyncio.sleep(max(0.0, since + seconds * self.stretch - boottime()))

    async def report(self) -> str:
        """For whoever has to find out why."""
        lines = [await self.see.report()]
        for host, member in self.members.items():
            if member.process is not None:
                lines += [f"--- {host} = {member.worker_id}, alive: {member.alive}", member.process.tail()]
        return "\n".join(lines)

    async def close(self) -> None:
        try:
            await self.see.close()
            for server in self.postgres.values():
                # killed, it would leave its shared memory behind
                await server.end(signal.SIGQUIT)
            await self.processes.close()
        finally:
            self.layer.close()
            self._nemesis.close()
            self._deaths.close()
