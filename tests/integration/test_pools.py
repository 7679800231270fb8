"""Runs that only wait have slots of their own: however many there are, those who work get theirs."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.clock import boottime
from supervisor.config import Timings
from supervisor.election import Tenure
from supervisor.embedded import Urls
from supervisor.leader import ASSIGN_BATCH, Leader
from supervisor.metrics import Metrics
from supervisor.pools import WAITING_SLOTS
from supervisor.store import Store
from supervisor.wakeups import Wakeups
from supervisor.why import Reason, explain
from tests.support.eventually import eventually
from tests.support.replica import replica
from tests.support.scene import Scene, secret_of
from tests.support.shelf import Shelf

SLOTS = 2
SCAN = {"domain": "dedup", "action": "scan", "payload": {"library": "photos"}}
MANY = 1000


class Stage(Scene):
    """A replica with few slots for all three domains, and a leader of whom each call is made by hand."""

    store: Store

    def leader(self, *waiting: str) -> Leader:
        tenure = Tenure(self.epoch, "w1", boottime() + 600, 0)
        return Leader(self.store, tenure, Timings(), Wakeups("w1"), Metrics(), waiting=frozenset(waiting))

    async def heard(self, slots: int = SLOTS) -> None:
        await self.connection.execute(
            "SELECT FROM supervisor.beat('w1', $1, 1, 0, '{}', '{command,dedup,scm}', $2, 30, false)",
            secret_of("w1"),
            slots,
        )

    async def enqueue_many(self, job: str, count: int, priority: int) -> None:
        await self.connection.execute(
            "SELECT FROM generate_series(1, $2) n,"
            " supervisor.enqueue($1, '{}', n || gen_random_uuid()::text, NULL, $3)",
            job,
            count,
            priority,
        )

    async def held(self) -> Counter[str]:
        rows = await self.connection.fetch("SELECT domain FROM supervisor.job_run WHERE state = 'ASSIGNED'")
        return Counter(row["domain"] for row in rows)

    async def why(self, run: int) -> Reason:
        return (await explain(self.store, run, Timings())).reason


@pytest.fixture
async def stage(database: Urls) -> AsyncIterator[Stage]:
    stage = await Stage.open(database)
    assert isinstance(stage, Stage)
    stage.store = Store(database.control)
    await stage.lead("w1")
    await stage.job()
    await stage.job("scan", **SCAN)
    await stage.job("sync", domain="scm", payload={"repo": "r", "source": "git"})
    await stage.heard()
    yield stage
    await stage.store.close()
    await stage.close()


async def test_many_due_runs_that_wait_hide_no_work(stage: Stage) -> None:
    """They stand first in claim order, by their priority; one look gives out as much as each pool takes."""
    leader = stage.leader("dedup", "scm")
    await stage.enqueue_many("scan", MANY, priority=100)
    await stage.enqueue_many("job", 1, priority=0)
    await stage.heard()
    await leader.assign()
    assert await stage.held() == {"dedup": WAITING_SLOTS, "command": 1}
    [worker] = await leader.read_workers()
    assert worker.held_by == {"dedup": WAITING_SLOTS, "command": 1}

    await stage.enqueue_many("sync", 3, priority=50)
    await stage.enqueue_many("job", 3, priority=0)
    await stage.heard()
    await leader.assign()
    assert await stage.held() == {"dedup": WAITING_SLOTS, "command": SLOTS, "scm": 3}
    await leader.assign()
    assert (await stage.held())["command"] == SLOTS


async def test_a_batch_of_several_pools_is_followed_by_the_next_at_once(stage: Stage) -> None:
    leader = stage.leader("dedup")
    await stage.enqueue_many("job", ASSIGN_BATCH + 1, priority=0)
    await stage.enqueue_many("scan", 3, priority=0)
    await stage.heard(slots=2 * ASSIGN_BATCH)
    assert await leader.assign()
    assert await stage.held() == {"command": ASSIGN_BATCH, "dedup": 3}
    assert not await leader.assign()
    assert (await stage.held())["command"] == ASSIGN_BATCH + 1


async def test_a_domain_that_the_leader_does_not_know_is_one_of_those_who_work(stage: Stage) -> None:
    await stage.enqueue_many("scan", 5, priority=100)
    await stage.enqueue_many("sync", 5, priority=50)
    await stage.leader("scm").assign()
    assert await stage.held() == {"dedup": SLOTS, "scm": 5}


async def test_a_worker_without_runs_holds_nothing(stage: Stage) -> None:
    [worker] = await stage.leader().read_workers()
    assert (worker.held_by, worker.running) == ({}, 0)


async def test_why_counts_the_slots_of_the_run_s_own_pool(stage: Stage) -> None:
    await stage.run_to("RUNNING", "scan")
    for _ in range(SLOTS):
        await stage.run_to("RUNNING")
    command, scan = await stage.why(await stage.enqueue()), await stage.why(await stage.enqueue("scan"))
    assert (command.code, command.evidence["replicas"]) == ("NO_FREE_SLOT", {"w1": f"{SLOTS}/{SLOTS}"})
    assert command.evidence["runs"] == {"command": SLOTS}
    assert (scan.code, scan.evidence["free_slots"]) == ("IN_LINE", WAITING_SLOTS - 1)


async def test_why_says_when_those_who_wait_are_too_many(stage: Stage) -> None:
    await stage.enqueue_many("scan", WAITING_SLOTS + 1, priority=0)
    await stage.leader("dedup").assign()
    left = await stage.value("SELECT id FROM supervisor.job_run WHERE state = 'PENDING'")
    scan, command = await stage.why(left), await stage.why(await stage.enqueue())
    full = {"w1": f"{WAITING_SLOTS}/{WAITING_SLOTS}"}
    assert (scan.code, scan.evidence["replicas"]) == ("NO_FREE_SLOT", full)
    assert "TENURE_SLOTS" not in scan.next
    assert (command.code, command.evidence["free_slots"]) == ("IN_LINE", SLOTS)


async def test_a_command_runs_beside_any_number_that_wait(database: Urls, tmp_path: Path) -> None:
    """No replica has the libraries, so no scan is ever claimed: its run, and all that wait for it, stay."""
    scene, shelf = await Scene.open(database), await Shelf.open(database)

    async def states(job: str) -> Counter[Any]:
        rows = await scene.connection.fetch(
            "SELECT r.state FROM supervisor.job_run r JOIN supervisor.job_definition d"
            " ON d.id = r.job_definition_id WHERE d.name = $1",
            job,
        )
        return Counter(row["state"] for row in rows)

    async def run_of(job: str, state: str, least: int) -> bool:
        return (await states(job))[state] >= least

    try:
        await shelf.library()
        await scene.job()
        await scene.job("scan", **SCAN)
        for _ in range(10):
            await scene.enqueue("scan", priority=100)
        env = {"TENURE_SLOTS": str(SLOTS), "TENURE_DOMAINS": "command,dedup"}
        async with replica(database, tmp_path, env=env):
            await eventually(lambda: run_of("scan", "RUNNING", SLOTS), timeout=30, what="scans that wait")
            await scene.enqueue()
            await eventually(lambda: run_of("job", "SUCCEEDED", 1), timeout=20, what="the command")
            await eventually(lambda: run_of("scan", "RUNNING", 10), what="all scans to wait")
    finally:
        await shelf.close()
        await scene.close()
