"""Clocks are set: a worker's wall clock means nothing, and the database's alone takes nothing away."""

import random
import time
from dataclasses import dataclass
from typing import Final

from supervisor.clock import boottime
from tests.chaos.clocks import set_clock
from tests.chaos.faults import ClockSet, Cut, Kill
from tests.chaos.load import Load
from tests.chaos.scenario import Scenario
from tests.chaos.scenarios.database import warmed_up
from tests.chaos.scenarios.worker import same_attempts_succeed, victim_with_work, work_on
from tests.chaos.topology import Topology
from tests.chaos.world import World
from tests.support.replicas import TAKE_OVER, C, D, S

HOUR: Final = 3600.0
# the lease of a leader that renews survives it, and a silent worker looks that much older
LESS_THAN_A_LEASE: Final = 4.5
NO_LOAD: Final = Load(per_second=0)
CALM: Final = Load(per_second=0.5, seconds=(0.2, 1), failing=0, poison=0)
HOSTS: Final = ("r1", "r2", "r3")
SETTABLE: Final = Topology(clocks=dict.fromkeys(HOSTS, False), variants=dict.fromkeys(HOSTS, "true-timers"))
SETTABLE_SERVER: Final = Topology(clocks={"pg1": False})
SLOW: Final = "r3"


def slow(rate: float) -> Topology:
    """libfaketime cannot do it: the waits of threads hang with it."""
    return Topology(variants={SLOW: "slow-clock"}, env={"CHAOS_RATE": str(rate)})


@dataclass(frozen=True)
class ClockJump:
    """A database's clock is set, and stays so: what was written by it would not be comparable again.

    Seconds are those of the world: a lease is longer in a world that is stretched.
    """

    seconds: float
    target: str = "pg1"

    async def start(self, world: World) -> None:
        set_clock(world.home, self.target, f"{self.seconds * world.stretch:+g}")

    async def stop(self, _world: World) -> None:
        """It stays as it is."""


async def wall_clocks_set(world: World, chance: random.Random) -> None:
    """The leader's and a worker's, an hour forward and an hour back, while work goes on."""
    await warmed_up(world)
    leader, epoch = await world.leader(), await world.see.epoch()
    victim, runs = await victim_with_work(world, S + 3)
    hours = [HOUR, -HOUR]
    chance.shuffle(hours)
    for seconds in hours:
        async with world.during(
            ClockSet(victim.host, f"{seconds:+g}"), ClockSet(leader.host, f"{-seconds:+g}")
        ):
            await world.passed(boottime(), chance.uniform(2, 3))
            ahead = await leader.metric("tenure_leader_last_tick_timestamp_seconds") - time.time()
            assert abs(ahead + seconds) < HOUR / 2, f"the leader's clock is {ahead:.0f} s ahead"
    await same_attempts_succeed(world, runs, "a clock that was set")
    assert await world.see.epoch() == epoch, "the leader changed"


async def server_clock_over_a_cut(world: World, chance: random.Random) -> None:
    """To the database the cut-off worker is silent for long; the leader has not watched it for D yet."""
    await warmed_up(world)
    victim, runs = await victim_with_work(world, D + C + 4)
    roots = {one.root for one in world.executions() if one.run in runs}
    began = boottime()
    async with world.during(Cut(victim.host, "pg1")):
        await world.passed(began, chance.uniform(0.1, 0.6))
        await world.begin(ClockJump(chance.choice((LESS_THAN_A_LEASE, HOUR))))
        await executed_again(world, roots, began)


async def server_clock_over_a_cut_control(world: World, _chance: random.Random) -> None:
    """Twice as far as D without costing the leader its lease: without a watch of its own it believes it."""
    await warmed_up(world)
    victim, runs = await victim_with_work(world, D + C + 4)
    roots = {one.root for one in world.executions() if one.run in runs}
    began = boottime()
    async with world.during(Cut(victim.host, "pg1")):
        for step in (1, 2):
            await renewed(world)
            await world.begin(ClockJump(step * LESS_THAN_A_LEASE))

        async def expired() -> bool:
            return not await world.see.on(victim.worker_id)

        await world.see.until(expired, within=D, what="its attempts to be taken", interval=0.02)
        world.figure("taken", boottime() - began)
    await executed_again(world, roots, began)


async def renewed(world: World) -> None:
    """The leader renews its lease now."""
    at = "SELECT renewed_at FROM supervisor.leader_lease"
    before = await world.see.value(at)

    async def later() -> bool:
        return bool(await world.see.value(at) != before)

    await world.see.until(later, within=TAKE_OVER, what="a renewal", interval=0.02)


async def executed_again(world: World, roots: set[int], began: float) -> None:
    async def again() -> bool:
        return {one.root for one in world.executions() if one.attempt > 1} >= roots

    await world.see.until(again, within=TAKE_OVER + D + C + 6, what="the next attempts to execute")
    world.figure("rerun", boottime() - began)


async def server_clock_forward(world: World, chance: random.Random) -> None:
    """Every lease is over at once; somebody leads again, and nothing is taken from those in contact."""
    await warmed_up(world)
    epoch = await world.see.epoch()
    _, runs = await victim_with_work(world, S + 2)
    await world.passed(boottime(), chance.uniform(0, 1))
    began = boottime()
    await world.begin(ClockJump(HOUR))
    await world.see.led_after(epoch, TAKE_OVER)
    world.figure("leader_gap", boottime() - began)
    await same_attempts_succeed(world, runs, "a database clock an hour ahead")


async def server_clock_back(world: World, chance: random.Random) -> None:
    """A worker dies and the clock goes back behind its last beat: it is missed all the same."""
    await warmed_up(world)
    leader = await world.leader()
    victim = world.others(leader)[0]
    runs = await work_on(world, victim.host, 5)
    roots = {one.root for one in world.executions() if one.run in runs}
    await world.passed(boottime(), chance.uniform(0, 0.5))
    began = boottime()
    async with world.during(Kill(victim.host)):
        await world.begin(ClockJump(-HOUR))
        await executed_again(world, roots, began)


async def slow_and_cut_off(world: World, chance: random.Random) -> None:
    """It counts its seconds longer than the others; it has stopped all the same when the next one begins."""
    await warmed_up(world)
    runs = await work_on(world, SLOW, D + C + 6)
    roots = {one.root for one in world.executions() if one.run in runs}
    await world.passed(boottime(), chance.uniform(0, 1))
    began = boottime()
    async with world.during(Cut(SLOW, "pg1")):
        await executed_again(world, roots, began)


SCENARIOS: Final = (
    Scenario(
        "C25",
        "wall clocks of the leader and a worker are set an hour forward and back: no effect",
        wall_clocks_set,
        rules=(4, 7),
        expects=("fault",),
        topology=SETTABLE,
        load=CALM,
    ),
    Scenario(
        "C26a",
        "the database's clock jumps an hour ahead: nothing is taken from workers in contact",
        server_clock_forward,
        rules=(4, 8, 9),
        expects=("fault", "leader_change"),
        topology=SETTABLE_SERVER,
        load=NO_LOAD,
    ),
    Scenario(
        "C26b",
        "the database's clock jumps ahead while a worker is cut off: its time is the leader's own watch",
        server_clock_over_a_cut,
        rules=(8, 9, 10),
        expects=("confirming", "timed_out", "retried"),
        topology=SETTABLE_SERVER,
        needs=("cut",),
        load=NO_LOAD,
    ),
    Scenario(
        "C26c",
        "a worker dies and the database's clock goes an hour back",
        server_clock_back,
        rules=(8, 9),
        expects=("timed_out", "retried"),
        topology=SETTABLE_SERVER,
        load=NO_LOAD,
    ),
    Scenario(
        "C27a",
        "a worker whose clock goes one percent slow is cut off for more than D",
        slow_and_cut_off,
        rules=(7, 9, 10),
        expects=("confirming", "timed_out", "retried"),
        topology=slow(0.99),
        needs=("cut",),
        load=NO_LOAD,
    ),
    Scenario(
        "C27b",
        "a worker whose clock goes ten percent slow is cut off for more than D: within the margin of S and D",
        slow_and_cut_off,
        rules=(7, 9, 10),
        expects=("confirming", "timed_out", "retried"),
        topology=slow(0.9),
        needs=("cut",),
        load=NO_LOAD,
    ),
    Scenario(
        "N27",
        "a clock so slow that S lasts longer than D: the overlap is reported (control)",
        slow_and_cut_off,
        rules=(7,),
        expects=("confirming", "timed_out", "retried"),
        topology=slow(0.3),
        needs=("cut",),
        load=NO_LOAD,
        reports=("K8", "K10"),
    ),
    Scenario(
        "N09",
        "the database's clock jumps ahead, and the leader does not ask its own watch (control)",
        server_clock_over_a_cut_control,
        rules=(9,),
        expects=("timed_out", "retried"),
        topology=SETTABLE_SERVER,
        needs=("cut",),
        load=NO_LOAD,
        guards_off=("9",),
        reports=("K8", "K11"),
    ),
)
