"""Redis is cut off, killed, emptied, frozen, full or replaced: no work is the worse for it (rule 15)."""

import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from redis.asyncio import Redis

from supervisor.clock import boottime
from tests.chaos.faults import Cut, Kill
from tests.chaos.load import Load, command
from tests.chaos.member import Member
from tests.chaos.processes import Process
from tests.chaos.scenario import Scenario
from tests.chaos.scenarios.worker import victim_with_work
from tests.chaos.servers import start_redis
from tests.chaos.topology import Topology
from tests.chaos.world import Fault, World
from tests.support.replicas import TAKE_OVER, C, D, R, S
from tests.support.slowness import patient

WITH_REDIS: Final = Topology(redis=True)
STEADY: Final = Load(per_second=3, seconds=(0.2, 1.5), failing=0, poison=0)
# a look a heartbeat, a batch, a start, and a busy machine
POLL_SECONDS: Final = 2.5
# the first failing call opens the breaker; lines say something at every assignment
FELT_SECONDS: Final = 5.0


@dataclass(frozen=True)
class KillRedis:
    """SIGKILL; at the end another one, empty, under the same address."""

    target: str = "redis"

    async def start(self, world: World) -> None:
        for process in redis_processes(world):
            await process.kill()

    async def stop(self, world: World) -> None:
        await start_redis(world, world.redis_port)


@dataclass(frozen=True)
class FreezeRedis:
    """SIGSTOP: connections stay open and nothing is answered."""

    target: str = "redis"

    async def start(self, world: World) -> None:
        for process in redis_processes(world):
            process.signal(signal.SIGSTOP)

    async def stop(self, world: World) -> None:
        for process in redis_processes(world):
            process.signal(signal.SIGCONT)


@dataclass(frozen=True)
class FullRedis:
    """No room and nothing may be evicted: every write is refused."""

    target: str = "redis"

    async def start(self, world: World) -> None:
        async with redis_of(world) as client:
            await client.config_set("maxmemory-policy", "noeviction")
            await client.config_set("maxmemory", "1")

    async def stop(self, world: World) -> None:
        async with redis_of(world) as client:
            await client.config_set("maxmemory", "0")


@dataclass(frozen=True)
class FlushRedis:
    """Every key is gone."""

    target: str = "redis"

    async def start(self, world: World) -> None:
        async with redis_of(world) as client:
            await client.flushall()

    async def stop(self, _world: World) -> None:
        """They do not come back."""


async def leader_cut_off(world: World, chance: random.Random) -> None:
    """The leader hears and says nothing by Redis; the others do."""
    await calm(world)
    leader, epoch = await world.leader(), await world.see.epoch()
    await world.passed(boottime(), chance.uniform(0, 1))
    began = boottime()
    async with world.during(Cut(leader.host, "redis")):
        await felt(world, [leader])
        runs = await world.see.trigger("load", 3, command(0.2))

        async def started() -> bool:
            return not {"PENDING", "ASSIGNED"} & set(await world.see.states(runs))

        asked = boottime()
        await world.see.until(started, within=POLL_SECONDS, what="work to start without Redis")
        world.figure("started_after", boottime() - asked)
        await world.passed(began, chance.uniform(6, 9))
        assert await leader.metric("tenure_redis_open") == 1, "the cut was over too early to mean anything"
    await unharmed(world, epoch)


async def worker_cut_off_from_the_database(world: World, chance: random.Random) -> None:
    """Its way to Redis stays; that it is still heard there counts for nothing."""
    victim, runs = await victim_with_work(world, S + 2)
    began = boottime()
    again = "SELECT count(*) FROM supervisor.job_run WHERE retry_of_id = ANY ($1) AND started_at IS NOT NULL"

    async def rerun() -> bool:
        return bool(await world.see.value(again, runs) == len(runs))

    async with world.during(Cut(victim.host, "pg1")):
        await world.see.until(rerun, within=D + C + 6, what="the next attempts")
        world.figure("rerun", boottime() - began)
        assert await victim.metric("tenure_redis_open") == 0, "it was cut off from Redis as well"
        async with redis_of(world) as client:
            heard = await client.pubsub_numsub("tenure")
        assert heard[0][1] == len(world.members), f"not everybody listens to Redis: {heard}"
        await world.passed(began, D + C + chance.uniform(0, 3))


async def every_trouble(world: World, chance: random.Random) -> None:
    """Killed, emptied, frozen, full, in an order of chance: no attempt, no confirmation, no leader lost."""
    troubles: list[Fault] = [KillRedis(), FlushRedis(), FreezeRedis(), FullRedis()]
    await calm(world)
    epoch = await world.see.epoch()
    for trouble in chance.sample(troubles, len(troubles)):
        await world.passed(boottime(), chance.uniform(0, 0.5))
        await answering(world)
        before = await errors(world)
        async with world.during(trouble):
            await world.passed(boottime(), chance.uniform(3, 4))
            if not isinstance(trouble, FlushRedis):
                await felt(world, [await world.leader()], before)
    await unharmed(world, epoch)


async def replaced_by_an_empty_one(world: World, chance: random.Random) -> None:
    """As a replica that is promoted before it has the keys; once while the leader dies too."""
    for turn in range(3):
        await answering(world)
        await world.see.trigger("load", 6, command(chance.uniform(0.2, 0.6)))
        await world.passed(boottime(), chance.uniform(0, 0.3))
        if turn != 1:
            async with world.during(KillRedis()):
                await world.passed(boottime(), chance.uniform(0, 0.2))
            continue
        leader, epoch = await world.leader(), await world.see.epoch()
        began = boottime()
        async with world.during(Kill(leader.host)):
            async with world.during(KillRedis()):
                await world.passed(boottime(), chance.uniform(0, 0.2))
            await world.see.led_after(epoch, TAKE_OVER)
            world.figure("leader_gap", boottime() - began)
    twice = """SELECT run_id, count(*) FROM supervisor.job_run_history WHERE to_state = 'ASSIGNED'
               AND from_state = 'ASSIGNED' GROUP BY 1"""
    assert not await world.see.rows(twice), "an assignment was given again before it was taken back"


async def calm(world: World) -> None:
    """Somebody has led for a while: the start of the replicas themselves is over."""
    stands = """SELECT clock_timestamp() - e.since > make_interval(secs => $1) AND l.holder IS NOT NULL
                FROM supervisor.leader_epoch e, supervisor.leader_lease l
                WHERE l.expires_at > clock_timestamp()"""

    async def led() -> bool:
        return bool(await world.see.value(stands, R * world.stretch))

    await world.see.until(led, within=3 * TAKE_OVER, what="a leader that stays")


async def unharmed(world: World, epoch: int) -> None:
    assert await world.see.epoch() == epoch, "the leader changed"
    costs = """SELECT run_id, to_state, continuation_state, reason FROM supervisor.job_run_history
               WHERE continuation_state <> 'NONE' OR attempt > 1
                     OR to_state IN ('TIMED_OUT', 'FAILED', 'ORPHANED')"""
    rows = await world.see.rows(costs)
    assert not rows, f"it cost: {rows[:5]}"


async def felt(world: World, members: list[Member], before: Mapping[str, float] = {}) -> None:
    """Their breaker is open, or was: without that the trouble was none."""

    async def noticed() -> bool:
        for one in members:
            more = await one.metric("tenure_redis_errors_total") > before.get(one.worker_id, 0)
            if not more and await one.metric("tenure_redis_open") == 0:
                return False
        return True

    await world.see.until(noticed, within=FELT_SECONDS, what="the trouble with Redis to be felt")


async def answering(world: World) -> None:
    """The leader uses Redis again: a breaker that is still open would hide the next trouble."""

    async def closed() -> bool:
        return await (await world.leader()).metric("tenure_redis_open") == 0

    await world.see.until(closed, within=15, what="the leader to use Redis again")


async def errors(world: World) -> dict[str, float]:
    return {one.worker_id: await one.metric("tenure_redis_errors_total") for one in world.others()}


def redis_processes(world: World) -> list[Process]:
    return [process for process in world.processes.all if process.host == "redis" and process.alive]


def redis_of(world: World) -> Redis:
    return Redis(host=world.layer.address("redis"), port=world.redis_port, socket_timeout=patient(2))


SCENARIOS: Final = (
    Scenario(
        "C14",
        "the leader is cut off from Redis",
        leader_cut_off,
        rules=(15,),
        expects=("fault",),
        topology=WITH_REDIS,
        load=STEADY,
        needs=("cut",),
    ),
    Scenario(
        "C15",
        "a worker is cut off from the database and not from Redis",
        worker_cut_off_from_the_database,
        rules=(8, 9, 15),
        expects=("confirming", "timed_out", "retried", "late_finish"),
        topology=WITH_REDIS,
        load=Load(per_second=1, seconds=(0.2, 1), failing=0, poison=0),
        needs=("cut",),
    ),
    Scenario(
        "C16",
        "Redis is killed, emptied, frozen and full",
        every_trouble,
        rules=(15,),
        expects=("fault",),
        topology=WITH_REDIS,
        load=STEADY,
    ),
    Scenario(
        "C17",
        "Redis is replaced by an empty one, once while the leader dies",
        replaced_by_an_empty_one,
        rules=(3, 15),
        expects=("leader_change", "restart"),
        topology=WITH_REDIS,
        load=STEADY,
    ),
)
