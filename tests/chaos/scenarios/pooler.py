"""A pooler in transaction mode stands between replicas and database, and is hurt: as if there were none."""

import random
from dataclasses import dataclass
from typing import Final

import asyncpg

from supervisor.clock import boottime
from supervisor.embedded import USERS
from tests.chaos.faults import Kill
from tests.chaos.load import Load, command
from tests.chaos.scenario import Scenario
from tests.chaos.servers import start_pgbouncer
from tests.chaos.topology import Topology
from tests.chaos.world import Fault, World
from tests.support.replicas import TAKE_OVER, C, D, K, L, R, S
from tests.support.slowness import patient

POOLED: Final = Topology(pgbouncer=True)
BUSY: Final = Load(per_second=3, seconds=(0.2, 2), failing=0.1, poison=0)
EPSILON: Final = 0.5


@dataclass(frozen=True)
class KillPooler:
    """SIGKILL: every session is gone in the middle of whatever it did; started again at the end."""

    target: str = "pgb"

    async def start(self, world: World) -> None:
        for process in world.processes.all:
            if process.host == self.target and process.alive:
                await process.kill()

    async def stop(self, world: World) -> None:
        await start_pgbouncer(world, world.pgbouncer_port)


@dataclass(frozen=True)
class PausePooler:
    """PAUSE: statements under way end, the next ones wait; RESUME at the end."""

    target: str = "pgb"

    async def start(self, world: World) -> None:
        await ordered(world, "PAUSE")

    async def stop(self, world: World) -> None:
        await ordered(world, "RESUME")


@dataclass(frozen=True)
class Reconnect:
    """Every server connection is replaced by a new one as soon as it is free."""

    target: str = "pgb"

    async def start(self, world: World) -> None:
        await ordered(world, "RECONNECT")

    async def stop(self, _world: World) -> None:
        """Nothing to undo."""


async def short_troubles(world: World, chance: random.Random) -> None:
    """One after another; after each everybody is heard of again, and somebody leads, as after a crash of the
    database (C19): what was answered stays, and what could not be answered is said again."""
    troubles: list[Fault] = [KillPooler(), PausePooler(), Reconnect(), KillPooler()]
    for trouble in chance.sample(troubles, len(troubles)):
        runs = await world.see.trigger("load", 3, command(chance.uniform(2, 4)))
        await world.passed(boottime(), chance.uniform(0.2, 1))
        async with world.during(trouble):
            await world.passed(boottime(), chance.uniform(0.2, 1))
        over = boottime()
        await world.see.until(lambda: everybody_beats(world), within=TAKE_OVER, what="everybody's beats")
        await world.leader(within=TAKE_OVER)
        world.figure("well_after", boottime() - over)

        async def started(runs: list[int] = runs) -> bool:
            return not {"PENDING", "ASSIGNED"} & set(await world.see.states(runs))

        await world.see.until(started, within=TAKE_OVER, what="work to start again")
    world.figure("leader_changes", await world.see.epoch() - 1)


async def everybody_beats(world: World) -> bool:
    heard = """SELECT count(*) FROM supervisor.worker
               WHERE worker_id = ANY ($1) AND heartbeat_at > clock_timestamp() - make_interval(secs => $2)"""
    workers = [one.worker_id for one in world.members.values()]
    return bool(await world.see.value(heard, workers, C * world.stretch) == len(workers))


async def long_pause(world: World, chance: random.Random) -> None:
    """As a database that is away: workers stop by themselves, and afterwards somebody leads in time."""
    await world.see.trigger("load", 6, command(S + K + 4))

    async def executing() -> bool:
        return {one.host for one in world.executions()} == set(world.members)

    await world.see.until(executing, within=8, what="work on every replica")
    await world.passed(boottime(), chance.uniform(0, 1))
    began = boottime()
    async with world.during(PausePooler()):
        await world.passed(began, S + K + 2 * EPSILON)
        alive = [one for one in world.executions() if one.alive()]
        assert not alive, f"still executing {boottime() - began:.1f} s after the last contact: {alive}"
        await world.passed(began, max(L, D) + chance.uniform(1, 3))
    up = boottime()
    await world.leader(within=TAKE_OVER)
    world.figure("leader_gap", boottime() - up)


async def killed_with_the_leader(world: World, chance: random.Random) -> None:
    """The pooler dies, comes back, and the leader dies through it: the next one leads in time."""
    leader, epoch = await world.leader(), await world.see.epoch()
    async with world.during(KillPooler()):
        await world.passed(boottime(), chance.uniform(0, R / 2))
    began = boottime()
    async with world.during(Kill(leader.host)):
        await world.see.led_after(epoch, TAKE_OVER)
        world.figure("leader_gap", boottime() - began)


async def ordered(world: World, what: str) -> None:
    """By the pooler's own console."""
    secret = world.postgres["pg1"].template.passwords["admin"]
    console = await asyncpg.connect(
        host=world.layer.address("pgb"),
        port=world.pgbouncer_port,
        user=USERS["admin"],
        password=secret,
        database="pgbouncer",
        statement_cache_size=0,
        timeout=patient(5),
    )
    try:
        await console.execute(what, timeout=patient(10))
    finally:
        console.terminate()


SCENARIOS: Final = (
    Scenario(
        "C31a",
        "a pooler in transaction mode is killed, paused and reconnected, each for a moment",
        short_troubles,
        rules=(12, 16),
        expects=("fault", "unknown_outcome"),
        topology=POOLED,
        load=BUSY,
    ),
    Scenario(
        "C31b",
        "a pooler is paused for longer than D",
        long_pause,
        rules=(4, 7, 12, 16),
        expects=("fault", "unknown_outcome", "timed_out", "retried", "leader_change"),
        topology=POOLED,
        load=Load(per_second=0.5, seconds=(0.2, 1), failing=0, poison=0),
    ),
    Scenario(
        "C31c",
        "the leader dies behind a pooler that was just killed",
        killed_with_the_leader,
        rules=(2, 3, 4, 16),
        expects=("leader_change", "restart", "unknown_outcome"),
        topology=POOLED,
        load=BUSY,
    ),
)
