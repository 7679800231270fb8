"""A rolling upgrade. The last release and the next version share a database while work flows.

The next version is this one with one more migration and a changed function, so that a real migration happens
under load even when this version brings none of its own.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import asyncpg
import httpx
import pytest

from supervisor.embedded import Urls
from tests.support.eventually import eventually
from tests.support.replica import replica, timings
from tests.support.replicas import Fleet, Member, replicas
from tests.upgrade.trees import Tree, expanded, released

T = TypeVar("T")

# Nobody is killed here: what is late is the machine's fault, and must not be taken for a lost replica's.
SECONDS = {
    "TENURE_LEADER_LEASE_SECONDS": 12,
    "TENURE_RENEW_DEADLINE_SECONDS": 8,
    "TENURE_CONFIRM_AFTER_SECONDS": 6,
    "TENURE_SELF_STOP_SECONDS": 10,
    "TENURE_STOP_BOUND_SECONDS": 14,
    "TENURE_DRAIN_SECONDS": 0.5,
}
PAUSE_SECONDS = 0.4
SERVED = """SELECT DISTINCT t.holder, r.assigned_worker_id FROM supervisor.job_run r
            JOIN supervisor.tenure_log t ON t.epoch = r.assigned_epoch AND t.what = 'ACQUIRED'
            WHERE r.state = 'SUCCEEDED'"""
AT_WORK = """SELECT r.id FROM supervisor.job_run r
             JOIN supervisor.job_definition d ON d.id = r.job_definition_id
             WHERE d.name = 'long' AND r.state = 'RUNNING' AND r.assigned_worker_id = $1
               AND r.started_at > clock_timestamp() - make_interval(secs => $2)"""
EXPANDED = "SELECT DISTINCT assigned_worker_id FROM supervisor.job_run WHERE started_with = 'expanded'"
LOST = """SELECT root_id, attempt, state, error_code, error_message FROM supervisor.job_run
          WHERE state <> 'SUCCEEDED' AND error_code IS DISTINCT FROM 'DRAINED'"""


@dataclass
class Load:
    """Runs that are asked for all the time, by a client with a connection of its own."""

    connection: "asyncpg.Connection[asyncpg.Record]"
    pause_seconds: float
    runs: list[int] = field(default_factory=list)

    async def flow(self) -> None:
        while True:
            for name in ("short", "short", "long"):
                key = f"{name}-{len(self.runs)}"
                enqueue = "SELECT id FROM supervisor.enqueue($1, '{}', $2)"
                self.runs.append(await self.connection.fetchval(enqueue, name, key))
                await asyncio.sleep(self.pause_seconds)


@asynccontextmanager
async def load(fleet: Fleet) -> AsyncIterator[Load]:
    """Long ones outlive a drain and are done again elsewhere. A lost one would not be: it has one attempt."""
    await fleet.define("short", fleet.effects.short_command(), max_attempts=1)
    await fleet.define("long", fleet.effects.command(2.5), max_attempts=1)
    connection = await asyncpg.connect(fleet.urls.admin)
    flowing = Load(connection, PAUSE_SECONDS * fleet.stretch)
    task = asyncio.create_task(flowing.flow())
    try:
        yield flowing
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await connection.close()


async def start(fleet: Fleet, tree: Tree) -> Member:
    """`tenure up` of this tree, once the others know it."""
    longer = {name: str(seconds * fleet.stretch) for name, seconds in SECONDS.items()}
    environment = {**timings(fleet.stretch), **longer, "TENURE_SLOTS": "4", **tree.environment}
    starting = replica(fleet.urls, fleet.directory, env=environment, command=tree.command("up"), ready=None)
    process = await fleet.stack.enter_async_context(starting)
    await eventually(lambda: process.answers("/readyz"), timeout=60, interval=0.3, what="a replica")
    assert tree.made(process.output().partition("\n")[0]), process.output()
    answer = await patiently(lambda: process.get("/healthz"))
    member = Member(process, answer.json()["worker_id"], None)
    fleet.members.append(member)
    await eventually(lambda: fleet._known(member), timeout=10, what="the first beat")
    return member


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """On a busy machine a probe may come too late; only that is asked again."""

    async def answer() -> list[T]:
        try:
            return [await ask()]
        except httpx.TransportError as error:
            raise AssertionError(repr(error)) from error

    [found] = await eventually(answer, timeout=60, interval=0.3, what="an answer")
    return found


async def roll(fleet: Fleet, member: Member) -> None:
    """Ended in the middle of a long run, which then has to be done by another."""
    just_now = 0.5 * fleet.stretch
    await fleet.until(lambda: fleet.value(AT_WORK, member.worker_id, just_now), within=60, what="a long run")
    await leave(member)


async def leave(member: Member) -> None:
    """As Kubernetes ends it; until then nothing of it may have been refused or too late."""
    for name in ("tenure_fenced_writes_total", "tenure_late_finishes_total"):
        assert await patiently(partial(member.metric, name)) == 0
    member.term()
    assert await member.replica.wait() == 0, member.replica.output()
    check_log(member)


def check_log(member: Member) -> None:
    """It raised nothing, and met nothing that it did not expect."""
    assert not re.search("^Traceback", member.replica.output(), re.MULTILINE), member.replica.output()
    assert [line for line in member.said() if line.get("level") == "error"] == []


async def led(fleet: Fleet, leaders: Collection[Member], workers: Collection[Member]) -> None:
    """Until one of these has succeeded with what one of those assigned to it."""

    async def done() -> bool:
        served = {tuple(row.values()) for row in await fleet.rows(SERVED)}
        return any((one.worker_id, other.worker_id) in served for one in leaders for other in workers)

    await fleet.until(done, within=60, what="work that the other version assigned")


async def pass_to(fleet: Fleet, member: Member, others: Sequence[Member]) -> None:
    """Leadership goes to this one: of two replicas the one that resigns lets the other go first."""

    async def leads() -> bool:
        holder = await fleet.holder()
        if holder in others:
            await fleet.rows("SELECT FROM supervisor.request_resign('test')")
        return holder is member

    await fleet.until(leads, within=60, what="the other version to lead", interval=0.2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_two_versions_share_a_database_while_it_is_migrated(
    absent_database: Urls, tmp_path: Path
) -> None:
    urls = absent_database
    old, new = released(tmp_path / "old"), expanded(tmp_path / "new")
    made = await old.tenure(urls, "migrate", "--json", cwd=tmp_path)
    assert made.code == 0, made.complained

    async with replicas(urls, tmp_path, count=0) as fleet:
        first, second = await asyncio.gather(start(fleet, old), start(fleet, old))
        async with load(fleet) as flowing:
            await led(fleet, [first, second], [first])
            await led(fleet, [first, second], [second])
            epoch = await fleet.epoch()

            migrated = await new.tenure(urls, "migrate", "--json", cwd=tmp_path)
            assert migrated.code == 0, migrated.complained
            report = migrated.report()
            assert report["applied"][-1] == report["version"] > made.report()["version"]
            assert report["functions_replaced"]
            assert await fleet.epoch() == epoch, "the leader did not notice"

            # one of the old version starts only now: a newer schema is no reason to refuse
            newer, late = await asyncio.gather(start(fleet, new), start(fleet, old))
            await led(fleet, [first, second, late], [newer])

            await roll(fleet, first)
            await roll(fleet, second)
            await pass_to(fleet, newer, [late])
            await led(fleet, [newer], [late])
            await pass_to(fleet, late, [newer])
            await led(fleet, [late], [newer])
            await roll(fleet, late)

        await fleet.until(lambda: fleet.succeeded(flowing.runs), within=60, what="the end of all runs")
        executions = fleet.effects.executions()
        done = [executions[str(row["claim_id"])] for row in await fleet.last(flowing.runs)]
        assert all(one.begins == 1 and one.ended for one in done)
        assert await fleet.rows(LOST) == []
        assert await fleet.value("SELECT count(*) FROM supervisor.job_run WHERE error_code = 'DRAINED'") > 0
        assert await fleet.rows("SELECT * FROM supervisor.late_finish") == []
        changed = {row["assigned_worker_id"] for row in await fleet.rows(EXPANDED)}
        assert {late.worker_id, newer.worker_id} <= changed, "both versions start runs by the new function"
        await leave(newer)
