"""A standby becomes the primary: what it never got is lost and counted, and nothing is done twice for it."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import asyncpg

from supervisor.clock import boottime
from supervisor.store import CALL_SECONDS
from tests.chaos.faults import Cut, Freeze, FreezeServer, Promote, TerminateSessions
from tests.chaos.judge import calls
from tests.chaos.load import Load, command
from tests.chaos.observer import ENDED
from tests.chaos.scenario import Inconclusive, Scenario
from tests.chaos.scenarios.database import prepared, warmed_up
from tests.chaos.topology import Topology
from tests.chaos.world import World
from tests.support.replicas import TAKE_OVER, C, D, S
from tests.support.slowness import patient

TIMELINE_BITS: Final = 32
REPLICA: Final = "r3"
# beats, elections and calls each find the new primary by themselves
FOUND_SECONDS: Final = 6.0
STANDBY: Final = Topology(standby=True)
# it only works: stopped, it must not leave the others without a leader
WORKING: Final = Topology(standby=True, variants={REPLICA: "never-leads"})
NO_LOAD: Final = Load(per_second=0)
# until it is given out again it is still being executed
LONG: Final = C + D + FOUND_SECONDS + 1
UNCONFIRMED: Final = "not confirmed by the standby"


@dataclass(frozen=True)
class Gone:
    """A database that the replicas never reach again: it is down, or `silent`: every packet is dropped."""

    target: str = "pg1"
    silent: bool = False

    async def start(self, world: World) -> None:
        if not self.silent:
            await world.postgres[self.target].end(signal.SIGQUIT)
            return
        for host in world.members:
            await world.layer.cut(host, self.target)

    async def stop(self, _world: World) -> None:
        """It stays away."""


@dataclass(frozen=True)
class BackAgain:
    """A database that was left behind by a failover is started again as the primary that it was."""

    target: str = "pg1"

    async def start(self, world: World) -> None:
        await world.postgres[self.target].start()

    async def stop(self, world: World) -> None:
        await world.postgres[self.target].end(signal.SIGQUIT)


@dataclass(frozen=True)
class CancelWaits:
    """Whoever waits for the standby is cancelled, again and again: committed, and perhaps nowhere else."""

    target: str = "pg1"
    _running: list["asyncio.Task[None]"] = field(default_factory=list)

    async def start(self, world: World) -> None:
        connection = await asyncpg.connect(world.postgres[self.target].urls.admin, timeout=patient(5))
        self._running.append(asyncio.create_task(self._cancel(world, connection)))

    async def _cancel(self, world: World, connection: asyncpg.Connection) -> None:
        waiting = """SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                     WHERE wait_event = 'SyncRep' AND application_name LIKE 'tenure/%'"""
        while True:
            ended = await connection.fetch(waiting)
            world.figures["waits_canceled"] = world.figures.get("waits_canceled", 0) + len(ended)
            await asyncio.sleep(0.1)

    async def stop(self, _world: World) -> None:
        task = self._running.pop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def promoted_behind(world: World, chance: random.Random) -> None:
    """Seconds of acknowledged work are not on the standby when it takes over."""
    await warmed_up(world)
    await known_to_the_standby(world)
    await world.passed(boottime(), chance.uniform(0, 2))
    epoch = await world.see.epoch()
    await world.begin(Cut("pg2", "pg1"))
    cut = boottime()
    await world.see.trigger("load", 3, command(0.2))
    await world.passed(cut, chance.uniform(2, 4))

    async def acknowledged() -> bool:
        return bool(ends_after(world, cut))

    await prepared(world, acknowledged, within=5, what="an outcome that the standby does not have")
    await world.begin(Gone())
    began = boottime()
    await world.begin(Promote("pg2"))
    await taken_over_on_the_next_timeline(world, epoch, began)
    lost = await lost_ends(world)
    if not lost:
        raise Inconclusive("nothing was lost: the standby was not behind")
    world.figure("lost_outcomes", len(lost))
    await nothing_is_given_for_d(world)


async def silent_primary(world: World, chance: random.Random) -> None:
    """The old primary does not refuse: it swallows every packet, as a dead machine does."""
    await warmed_up(world)
    await known_to_the_standby(world)
    await world.passed(boottime(), chance.uniform(0, 2))
    epoch = await world.see.epoch()
    await world.begin(Cut("pg2", "pg1"))
    await world.passed(boottime(), chance.uniform(0.5, 1.5))
    await world.begin(Gone(silent=True))
    began = boottime()
    await world.begin(Promote("pg2"))
    # a call over a connection that died without a word is given up first
    await taken_over_on_the_next_timeline(world, epoch, began, TAKE_OVER + CALL_SECONDS)
    await nothing_is_given_for_d(world)


async def resurrected(world: World, chance: random.Random) -> None:
    """Work was started on the old timeline; on the new one its assignment stands as if it was not."""
    await started_only_on_the_old(world, chance)
    await world.begin(Gone())
    began = boottime()
    await world.begin(Promote("pg2"))
    await world.see.led_after(0, TAKE_OVER)
    await given_again(world, began, D + FOUND_SECONDS + TAKE_OVER)


async def resurrected_and_cut_off(world: World, chance: random.Random) -> None:
    """The same, and the worker hears nothing of it: it stops by itself, and nobody begins before that."""
    await started_only_on_the_old(world, chance)
    # for the standby it is silent by now, so that what was lost is given to others and not to it again
    await world.passed(boottime(), C)
    await world.begin(Cut(REPLICA, "pg2"))
    await world.begin(Gone())
    began = boottime()
    await world.begin(Promote("pg2"))
    await world.see.led_after(0, TAKE_OVER)
    await given_again(world, began, D + FOUND_SECONDS + TAKE_OVER)


async def left_behind(world: World, chance: random.Random) -> None:
    """The old primary comes back with assignments that were given to others: nobody may start them there."""
    await assigned_and_not_started(world)
    began = boottime()
    await world.begin(Gone())
    await world.begin(Promote("pg2"))
    await world.end(Freeze(REPLICA))
    await world.see.led_after(0, TAKE_OVER)

    async def elsewhere() -> bool:
        return bool([one for one in world.executions() if one.attempt > 1])

    await world.see.until(elsewhere, within=D + FOUND_SECONDS + TAKE_OVER, what="the next attempts")
    world.figure("rerun", boottime() - began)
    # connections that are made from now on find the old one first
    async with world.during(BackAgain(), TerminateSessions("pg2", sessions=4)):
        await world.passed(boottime(), chance.uniform(3, 4))


async def synchronous(world: World, chance: random.Random) -> None:
    """Waits for the standby are cancelled; then it takes over, and has everything that was answered."""
    standby = await asyncpg.connect(world.postgres["pg2"].urls.admin, timeout=patient(5))
    # as a primary it would wait for itself
    await standby.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
    await standby.execute("SELECT pg_reload_conf()")
    await standby.close()
    await warmed_up(world)
    epoch = await world.see.epoch()
    runs = await world.see.trigger("load", 6, command(chance.uniform(0.8, 1.5)))

    async def running() -> bool:
        return await world.see.running(runs)

    await prepared(world, running, within=8, what="work to end while nobody confirms")
    frozen = boottime()
    async with world.during(FreezeServer("pg2"), CancelWaits()):

        async def told() -> bool:
            return bool(unconfirmed(world))

        await world.see.until(told, within=S, what="a completion that nobody confirmed")
        await world.passed(frozen, chance.uniform(1.5, 2.5))
    world.figure("unconfirmed", len(unconfirmed(world)))

    async def ended() -> bool:
        return await world.see.succeeded(runs)

    await world.see.until(ended, within=D + FOUND_SECONDS, what="the same work to be recorded")
    await world.begin(Gone())
    began = boottime()
    await world.begin(Promote("pg2"))
    await taken_over_on_the_next_timeline(world, epoch, began)
    lost = await lost_ends(world)
    assert not lost, f"answered, and not on the synchronous standby: {lost}"


async def known_to_the_standby(world: World) -> None:
    """The job that is asked for after the failover; a quick machine is here before the standby has it."""

    async def known() -> bool:
        standby = await asyncpg.connect(world.postgres["pg2"].urls.admin, timeout=patient(5))
        try:
            return bool(
                await standby.fetchval("SELECT true FROM supervisor.job_definition WHERE name = 'load'")
            )
        finally:
            await standby.close()

    await prepared(world, known, within=5, what="the job on the standby")


async def taken_over_on_the_next_timeline(
    world: World, epoch: int, began: float, within: float = TAKE_OVER
) -> None:
    new = await world.see.led_after(epoch, within)
    world.figure("leader_gap", boottime() - began)
    assert new >> TIMELINE_BITS == 1, f"epoch {new} does not begin with timeline 2"


async def nothing_is_given_for_d(world: World) -> None:
    """There is something to give out, and the first start comes D after the take-over, not before."""
    runs = await world.see.trigger("load", 3, command(0.2))
    since = "SELECT extract(epoch FROM clock_timestamp() - since)::float8 FROM supervisor.leader_epoch"

    async def given() -> bool:
        return "PENDING" not in await world.see.states(runs)

    await world.see.until(given, within=D + FOUND_SECONDS, what="the first assignment after the failover")
    waited = float(await world.see.value(since))
    world.figure("quarantine", waited)
    assert waited >= D * world.stretch, f"given out {waited:.2f} s after the failover"


async def started_only_on_the_old(world: World, chance: random.Random) -> None:
    """The standby has the assignments of a replica and not its starts."""
    copied = await assigned_and_not_started(world)
    await world.begin(Cut("pg2", "pg1"))
    await world.end(Freeze(REPLICA))

    async def executing() -> bool:
        return any(one.host == REPLICA and not one.ended for one in world.executions())

    await prepared(world, executing, within=5, what="it to be executed")
    if not await copied():
        raise Inconclusive("the standby has heard of the start")
    await world.passed(boottime(), chance.uniform(0, 0.5))


async def assigned_and_not_started(world: World) -> Callable[[], Awaitable[bool]]:
    """A replica is stopped with assignments that it has not started; returns whether the standby has them."""
    worker = world.members[REPLICA].worker_id
    await warmed_up(world)
    on_standby = """SELECT count(*) FROM supervisor.job_run
                    WHERE assigned_worker_id = $1 AND state = 'ASSIGNED'"""
    beaten = """SELECT clock_timestamp() - heartbeat_at < make_interval(secs => $2)
                FROM supervisor.worker WHERE worker_id = $1"""

    async def awake() -> bool:
        return bool(await world.see.value(beaten, worker, 0.2 * world.stretch))

    # stopped just after a beat it is given work for a while, and does not start it
    await prepared(world, awake, within=5, what=f"a beat of {REPLICA}", interval=0.02)
    await world.begin(Freeze(REPLICA))
    await world.see.trigger("load", 2 * world.topology.replicas, command(LONG))

    async def copied() -> bool:
        standby = await asyncpg.connect(world.postgres["pg2"].urls.admin, timeout=patient(5))
        try:
            return bool(await standby.fetchval(on_standby, worker))
        finally:
            await standby.close()

    await prepared(world, copied, within=5, what="an assignment on the standby")
    return copied


async def given_again(world: World, began: float, within: float) -> None:
    lost = {one.root for one in world.executions() if one.host == REPLICA and not one.ended}

    async def again() -> bool:
        return {one.root for one in world.executions() if one.attempt > 1} >= lost

    await world.see.until(again, within=within, what="it to be executed again")
    world.figure("rerun", boottime() - began)


def ends_after(world: World, since: float) -> list[dict[str, Any]]:
    """Completions that were answered as recorded after an instant."""
    return [
        call
        for call in calls(world.history)
        if call["f"] == "finish_runs" and call["kind"] == "ok" and call["t"] > since
    ]


def unconfirmed(world: World) -> list[dict[str, Any]]:
    return [
        call
        for call in calls(world.history)
        if call["f"] == "finish_runs" and UNCONFIRMED in (call.get("result") or {}).get("error", "")
    ]


async def lost_ends(world: World) -> list[int]:
    """Runs whose end was answered as recorded and which have not ended for the new primary."""
    told = {
        row["id"]
        for call in ends_after(world, 0)
        for row in call["result"]["rows"]
        if row["answer"] == "RECORDED"
    }
    ended: set[int] = set()
    with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        rows = await world.see.rows("SELECT id FROM supervisor.job_run WHERE state = ANY ($1)", list(ENDED))
        ended = {row["id"] for row in rows}
    return sorted(told - ended)


SCENARIOS: Final = (
    Scenario(
        "C22a",
        "a standby that is seconds behind is promoted: what was lost is counted, nothing is given out for D",
        promoted_behind,
        rules=(2, 3, 22),
        expects=("failover", "leader_change", "unknown_outcome"),
        topology=STANDBY,
        needs=("cut",),
        load=Load(per_second=2, seconds=(0.2, 3)),
        async_failover=True,
    ),
    Scenario(
        "C22b",
        "a started assignment stands unstarted after a failover, and its worker is in contact",
        resurrected,
        rules=(7, 22),
        expects=("failover", "orphaned", "reassigned"),
        topology=WORKING,
        needs=("cut",),
        load=NO_LOAD,
        async_failover=True,
    ),
    Scenario(
        "C22c",
        "a started assignment stands unstarted after a failover, and its worker is cut off",
        resurrected_and_cut_off,
        rules=(7, 22),
        expects=("failover", "orphaned", "reassigned"),
        topology=WORKING,
        needs=("cut",),
        load=NO_LOAD,
        async_failover=True,
    ),
    Scenario(
        "C22d",
        "a standby is promoted while the old primary's address swallows every packet",
        silent_primary,
        rules=(2, 22),
        expects=("failover", "leader_change", "unknown_outcome"),
        topology=STANDBY,
        needs=("cut",),
        load=Load(per_second=1, seconds=(0.2, 2)),
        async_failover=True,
    ),
    Scenario(
        "C22e",
        "the old primary comes back, and has assignments that were given to others since",
        left_behind,
        rules=(2, 22),
        expects=("failover", "orphaned", "reassigned"),
        topology=WORKING,
        load=NO_LOAD,
        async_failover=True,
    ),
    Scenario(
        "C23",
        "a synchronous standby: cancelled waits are not believed, and its promotion loses nothing",
        synchronous,
        rules=(12, 22),
        expects=("failover", "unknown_outcome"),
        topology=Topology(standby=True, synchronous=True),
        load=NO_LOAD,
    ),
    Scenario(
        "N22",
        "a failover without the time for what was lost to stop (control)",
        resurrected_and_cut_off,
        rules=(22,),
        expects=("failover", "reassigned"),
        topology=WORKING,
        needs=("cut",),
        load=NO_LOAD,
        async_failover=True,
        guards_off=("22",),
        reports=("K8",),
    ),
)
