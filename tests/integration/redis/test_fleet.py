"""Real replicas beside a Redis that helps, dies, freezes or lies: nobody's work is the worse for it (P7)."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from supervisor.clock import boottime
from supervisor.embedded import Urls
from supervisor.hints import lease_key, say_once
from supervisor.shortlease import TTL_SECONDS, UNASKED_SECONDS
from tests.support.bad_redis import stand_in
from tests.support.eventually import eventually
from tests.support.redis import DEAD, RedisServer
from tests.support.replicas import Fleet, replicas
from tests.support.slowness import patient, slowness

pytestmark = pytest.mark.slow
RUNS = 100
BOUND = 60.0
QUIET = 2.0
LEFT = "short leases are taken, leaving the runs for a moment"
# a worker that hears nothing looks after about ten minutes
UNHURRIED = {
    "TENURE_LEADER_LEASE_SECONDS": "15",
    "TENURE_RENEW_DEADLINE_SECONDS": "9",
    "TENURE_RENEW_RETRY_SECONDS": "2",
    "TENURE_HEARTBEAT_SECONDS": "600",
    "TENURE_CONFIRM_AFTER_SECONDS": "1800",
    "TENURE_SELF_STOP_SECONDS": "1900",
    "TENURE_KILL_SECONDS": "2",
    "TENURE_STOP_BOUND_SECONDS": "3200",
}


@asynccontextmanager
async def at_work(database: Urls, directory: Path, url: str) -> AsyncIterator[tuple[Fleet, list[int]]]:
    """Three replicas and short runs; left, each has been executed once, as if there were no Redis."""
    async with replicas(database, directory, TENURE_REDIS_URL=url) as fleet:
        epochs = len(await fleet.epochs())
        await fleet.define("work", fleet.effects.short_command())
        runs = await fleet.trigger("work", RUNS)
        yield fleet, runs
        await fleet.until(lambda: fleet.succeeded(runs), within=BOUND, what="all runs to succeed")
        executions = fleet.effects.executions().values()
        assert sorted(one.run_id for one in executions) == sorted(runs)
        assert all(one.begins == 1 and one.ended for one in executions)
        assert {row["attempt"] for row in await fleet.last(runs)} == {1}, "no re-run was caused"
        confirming = "SELECT count(*) FROM supervisor.job_run_history WHERE continuation_state <> 'NONE'"
        assert await fleet.value(confirming) == 0, "no CONFIRMING was caused"
        assert len(await fleet.epochs()) == epochs, "no change of the leader was caused"


async def errors(fleet: Fleet) -> float:
    """Count how often Redis failed a replica: only a busy machine makes a good one too slow."""
    if slowness() <= QUIET:
        return 0.0
    return sum([await one.metric("tenure_redis_errors_total") for one in fleet.members])


async def test_a_wake_up_by_redis_alone_reaches_the_leader_and_the_worker(
    database: Urls, tmp_path: Path, redis: RedisServer
) -> None:
    """Nobody can LISTEN: each word is heard over Redis."""
    nobody = "postgresql://nobody@127.0.0.1:1/none"
    env = {**UNHURRIED, "TENURE_REDIS_URL": redis.url, "TENURE_LISTEN_DATABASE_URL": nobody}
    async with replicas(database, tmp_path, count=0) as fleet:
        await fleet.start(2, env=env)
        await fleet.leader()
        await fleet.define("work", fleet.effects.short_command())

        async def connected() -> bool:
            return not any([await one.metric("tenure_redis_open") for one in fleet.members])

        await fleet.until(connected, within=10, what="a Redis that answers")
        before = await errors(fleet)
        for _ in range(6):
            (run,) = await fleet.trigger("work")
            await eventually(lambda: say_once(redis.url, "run"), interval=0.01)

            async def heard(run: int = run) -> bool:
                return await fleet.succeeded([run]) or await errors(fleet) > before

            await fleet.until(heard, within=15, what="the run")
        unassigned = await fleet.value(
            "SELECT extract(epoch FROM sum(assigned_at - created_at))::float8 FROM supervisor.job_run"
        )
        assert unassigned < patient(0.5) or await errors(fleet) > before, "the leader was not told"


async def test_with_a_real_redis(database: Urls, tmp_path: Path, redis: RedisServer) -> None:
    async with at_work(database, tmp_path, redis.url) as (fleet, runs):
        await fleet.until(lambda: fleet.succeeded(runs), within=BOUND, what="all runs to succeed")
        failed = await errors(fleet)
    with redis.client() as client:
        assert client.info("commandstats")["cmdstat_set"]["calls"] >= RUNS or failed, "leases were taken"
        assert not client.keys("jobrun:lease:*") or failed, "and given back"


async def test_redis_is_absent(database: Urls, tmp_path: Path) -> None:
    """C14."""
    async with at_work(database, tmp_path, DEAD) as (fleet, _):
        leader = await fleet.leader()
        assert await leader.metric("tenure_redis_open") == 1
        assert await leader.metric("tenure_redis_errors_total") >= 1


@pytest.mark.parametrize(
    "habits",
    [("garbage", "wrong", "closing", "nested", "slow", "too-slow", "endless"), ("silent",), ("shouting",)],
)
async def test_redis_is_none(database: Urls, tmp_path: Path, habits: tuple[str, ...]) -> None:
    """S19, S20: what it answers is data, and never decides."""
    async with stand_in(*habits) as bad, at_work(database, tmp_path, bad.url):
        pass


async def test_an_attacker_has_taken_every_lease_for_ever(
    database: Urls, tmp_path: Path, redis: RedisServer
) -> None:
    """H29, S20: keys of all kinds, without expiry; decisions come later by the lease's time, and once."""
    theirs = [lease_key(run) for run in range(1, 2002)]
    with redis.client() as client:
        for run in range(1, 2000, 3):
            client.set(lease_key(run), "attacker")
            client.set(lease_key(run + 1), os.urandom(100))
            client.lpush(lease_key(run + 2), "\x80\x04K\x01.")
        async with at_work(database, tmp_path, redis.url) as (fleet, runs):
            began = boottime()
            await fleet.until(lambda: fleet.succeeded(runs), within=BOUND, what="all runs to succeed")
            rounds = 1 + (boottime() - began) // (TTL_SECONDS + UNASKED_SECONDS)
            queued = await fleet.value(
                """SELECT extract(epoch FROM min(assigned_at - created_at))::float8
                   FROM supervisor.job_run WHERE id = ANY ($1::bigint[])""",
                runs,
            )
            assert queued > 1.5 or await errors(fleet), f"put off for the lease's time to live: {queued}"
            assert queued < TTL_SECONDS + patient(2), f"and not for longer: {queued}"
            told = [line["event"] for member in fleet.members for line in member.said()]
            assert told.count(LEFT) <= rounds, "and once, not for each batch"
        assert client.exists(*theirs) == len(theirs), "nobody deleted what is not theirs"


async def test_an_attacker_takes_leases_shouts_and_flushes_while_the_work_goes_on(
    database: Urls, tmp_path: Path, redis: RedisServer
) -> None:
    async with at_work(database, tmp_path, redis.url) as (fleet, runs):
        with redis.client() as client:

            async def done() -> bool:
                client.flushall()
                for run in runs[:: max(1, RUNS // 50)]:
                    client.set(lease_key(run), "attacker")
                for text in ("run", "assigned", "leader", "event", "lease:x", "drain", "\x00"):
                    client.publish("tenure", text)
                return await fleet.succeeded(runs)

            await fleet.until(done, within=BOUND, what="all runs", interval=0.01)
