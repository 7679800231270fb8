"""The database goes away: crashed under load, gone for long, or its sessions ended one after another."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from supervisor.clock import boottime
from supervisor.cluster import Cluster
from supervisor.embedded import Urls
from supervisor.wakeups import Wakeups
from tests.support import databases
from tests.support.effects import is_alive
from tests.support.eventually import eventually
from tests.support.proxy import Proxy
from tests.support.replicas import TAKE_OVER, C, D, Fleet, H, K, S, replicas
from tests.support.server import own_root, start_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
Record = Callable[[str, object], None]


@asynccontextmanager
async def own_database() -> AsyncIterator[tuple[Cluster, Urls]]:
    """A database on a server that only this test has, and may crash."""
    cluster, server = await asyncio.to_thread(start_server, own_root())
    try:
        async with databases.fresh_database(server) as urls:
            yield cluster, urls
    finally:
        await asyncio.to_thread(cluster.stop)


async def crash(cluster: Cluster) -> None:
    """As `pg_ctl stop -m immediate`: no checkpoint, recovery at the next start."""
    pid = cluster.postmaster()
    assert pid is not None
    os.kill(pid, signal.SIGQUIT)
    await eventually(lambda: not is_alive(pid), timeout=10, what="the server to be down", interval=0.02)
    if cluster._child is not None:
        cluster._child.wait()


async def start_again(cluster: Cluster) -> None:
    port = cluster.port
    assert await asyncio.to_thread(cluster.start, port) == port


async def outcomes(fleet: Fleet) -> dict[int, tuple[object, ...]]:
    rows = await fleet.rows(
        """SELECT id, state, claim_id, finished_at FROM supervisor.job_run
           WHERE state IN ('SUCCEEDED', 'FAILED', 'TIMED_OUT', 'CANCELED')"""
    )
    return {row["id"]: tuple(row.values()) for row in rows}


async def test_a_crash_of_the_database_under_load_loses_and_repeats_nothing(
    tmp_path: Path, record_property: Record
) -> None:
    """C19: what was acknowledged is there, a leader within L + 4 s, a short outage costs no attempt."""
    async with own_database() as (cluster, urls), replicas(urls, tmp_path) as fleet:
        await fleet.define("work", fleet.effects.command(0.7))
        runs = await fleet.trigger("work", 120)
        longest = 0.0
        for share in (20, 60):

            async def done(share: int = share) -> bool:
                return len(await outcomes(fleet)) >= share

            await fleet.until(done, within=20, what=f"{share} runs done")
            acknowledged = await outcomes(fleet)
            began = time.monotonic()
            await crash(cluster)
            await start_again(cluster)
            down = time.monotonic() - began
            longest = max(longest, down)
            record_property("down for seconds", round(down, 2))
            now = await outcomes(fleet)
            assert {run: now.get(run) for run in acknowledged} == acknowledged
            up = time.monotonic()
            await fleet.leader(within=TAKE_OVER)
            record_property("led again after seconds", round(time.monotonic() - up, 2))
        await fleet.until(lambda: fleet.succeeded(runs), within=D + C + 20, what="all runs to succeed")
        again = [row["root_id"] for row in await fleet.last(runs) if row["attempt"] > 1]
        record_property("runs that took more than one attempt", len(again))
        if longest < S - 4 * H:
            assert again == [], "an outage that everybody could sit out cost attempts"
        assert all(one.alive for one in fleet.members)
        done_once = [one for one in fleet.effects.executions().values() if one.ended]
        assert len(done_once) == len(runs)


async def test_a_long_absence_of_the_database_costs_children_but_no_replica(
    tmp_path: Path, record_property: Record
) -> None:
    """C20: gone for 2D, everything has stopped by itself; once it is back everything ends."""
    async with own_database() as (cluster, urls), replicas(urls, tmp_path) as fleet:
        await fleet.define("work", fleet.effects.command(6, brood=True))
        runs = await fleet.trigger("work", 9)
        await fleet.until(lambda: fleet.running(runs), within=8, what="all running")
        await crash(cluster)
        began = boottime()
        executions = list(fleet.effects.executions().values())

        def stopped() -> bool:
            return not [pid for one in executions for pid in one.alive()]

        await eventually(stopped, timeout=S + K + 0.5, what="everything to stop by itself")
        record_property("stopped after seconds", round(boottime() - began, 2))
        await eventually(lambda: boottime() - began > 2 * D, timeout=2 * D, what="2 D to pass")
        assert all(one.alive for one in fleet.members), "the outage cost a replica"
        await start_again(cluster)
        up = boottime()
        await fleet.leader(within=TAKE_OVER)
        record_property("led again after seconds", round(boottime() - up, 2))
        await fleet.until(lambda: fleet.succeeded(runs), within=D + C + 10 + 6, what="all runs to succeed")
        record_property("all done after seconds", round(boottime() - up, 2))
        assert {row["attempt"] for row in await fleet.last(runs)} == {2}


async def test_sessions_ended_at_random_lose_and_repeat_nothing(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """C21: every call may be cut off after it was sent; repeated, each does what it does once."""
    async with replicas(database, tmp_path) as fleet:
        await fleet.define("work", fleet.effects.command(0.5))
        runs = await fleet.trigger("work", 150)
        ended = 0

        async def disturbed() -> bool:
            nonlocal ended
            rows = await fleet.rows(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()
                   ORDER BY random() LIMIT 2"""
            )
            ended += len(rows)
            return await fleet.succeeded(runs)

        await fleet.until(disturbed, within=60, what="all runs to succeed", interval=0.2)
        record_property("sessions ended", ended)
        assert ended > 20
        assert {row["attempt"] for row in await fleet.last(runs)} == {1}, await fleet.report()
        assert all(one.begins == 1 and one.ended for one in fleet.effects.executions().values())
        assert all(one.alive for one in fleet.members)


async def test_a_listening_connection_that_breaks_while_it_is_checked_is_made_again(database: Urls) -> None:
    async with Proxy(database.control) as proxy, anyio.create_task_group() as group:
        wakeups = Wakeups("somebody")
        group.start_soon(wakeups.listen, proxy.url)
        assert await wakeups.wait("run", 5), "not listening"
        await eventually(lambda: proxy.accepted == 1)
        await anyio.sleep(9)
        proxy.cut_replies()  # the check, 10 s after the last word, gets no answer
        await anyio.sleep(2)
        await proxy.reset()
        await proxy.heal()
        await wakeups.wait("run", 0)
        assert await wakeups.wait("run", 8), "not listening again"
        assert proxy.accepted == 2
        group.cancel_scope.cancel()
