"""The figures of the whole database: their shape, what they count, and what they cost."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import anyio
import asyncpg
import pytest

from schemas import queries
from supervisor.clock import Clock
from supervisor.embedded import Urls
from supervisor.jobrun import STATES
from supervisor.status import ENDED_LIMIT, StatusCache, read_figures, read_status
from supervisor.store import Store
from tests.support.scene import Scene, secret_of


@pytest.fixture
async def store(database: Urls) -> AsyncIterator[Store]:
    store = Store(database.control, name="test", size=4)
    yield store
    await store.close()


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    scene = await Scene.open(database)
    yield scene
    await scene.close()


async def test_empty_database_has_every_key_and_no_leader(store: Store) -> None:
    status = await read_status(store)
    assert status == {
        "leader": None,
        "replicas": [],
        "runs": dict.fromkeys(STATES, 0),
        "lag_seconds": {},
        "leases": {},
        "confirming": [],
        "orphaned": [],
    }


async def test_status_shows_leader_replicas_and_every_state(store: Store, scene: Scene) -> None:
    epoch = await scene.lead("w1")
    await scene.beat("w1")
    await scene.beat("w2", draining=True)
    await scene.job()
    runs = {state: await scene.run_to(state) for state in (*STATES, "CONFIRMING")}

    figures = await read_figures(store)

    status = figures.status
    assert status["leader"].keys() == {"worker_id", "epoch", "since", "lease_remaining_seconds"}
    assert (status["leader"]["worker_id"], status["leader"]["epoch"]) == ("w1", epoch)
    assert 30 < status["leader"]["lease_remaining_seconds"] <= 60
    assert {one["worker_id"]: (one["state"], one["claims"]) for one in status["replicas"]} == {
        "w1": ("active", 3),
        "w2": ("draining", 0),
    }
    assert status["replicas"][0].keys() == {
        "worker_id",
        "state",
        "domains",
        "contact",
        "heartbeat_age_seconds",
        "claims",
    }
    assert status["runs"] == {**dict.fromkeys(STATES, 1), "RUNNING": 2}
    assert figures.runs["command", "SUCCEEDED"] == 1
    assert figures.confirming == 1
    assert [(one["id"], one["worker_id"]) for one in status["confirming"]] == [(runs["CONFIRMING"], "w1")]
    assert datetime.fromisoformat(status["confirming"][0]["deadline_at"]) > datetime.now(UTC)
    assert [one["id"] for one in status["orphaned"]] == [runs["ORPHANED"]]
    assert datetime.fromisoformat(status["orphaned"][0]["since"]) <= datetime.now(UTC) + timedelta(seconds=5)
    assert status["lag_seconds"].keys() == {"command"}
    json.dumps(status)


async def test_a_lease_that_is_over_is_no_leader(store: Store, scene: Scene) -> None:
    epoch = await scene.lead("w1")
    assert (await read_status(store))["leader"] is not None
    await scene.value("SELECT supervisor.resign($1, 'w1', 'test')", epoch)
    assert (await read_status(store))["leader"] is None


async def test_a_lease_of_another_server_is_no_leader(store: Store, scene: Scene) -> None:
    await scene.lead("w1")
    await scene.force("UPDATE supervisor.leader_epoch SET timeline = timeline + 1")
    assert (await read_status(store))["leader"] is None


async def test_lag_is_the_age_of_the_oldest_due_unstarted_run(store: Store, scene: Scene) -> None:
    now = datetime.now(UTC)
    await scene.job("late")
    await scene.job("paused", enabled=False)
    await scene.enqueue("late", not_before=now - timedelta(seconds=40))
    await scene.enqueue("late", not_before=now + timedelta(hours=1))
    await scene.enqueue("paused", not_before=now - timedelta(hours=2))
    lag = (await read_status(store))["lag_seconds"]["command"]
    assert 39 < lag < 70


async def test_lost_replicas_stay_in_sight_for_an_hour_or_while_a_run_names_them(
    store: Store, scene: Scene
) -> None:
    await scene.lead("w1")
    await scene.job()
    for worker in ("recent", "forgotten", "holding", "left"):
        await scene.beat(worker)
    await scene.run_to("RUNNING", worker="holding")
    await scene.value("SELECT supervisor.leave('left', $1)", secret_of("left"))
    await scene.force(
        "UPDATE supervisor.worker SET heartbeat_at = clock_timestamp() - interval '61 minutes'"
        " WHERE worker_id IN ('forgotten', 'holding')"
    )
    shown = {one["worker_id"] for one in (await read_status(store))["replicas"]}
    assert shown == {"recent", "holding"}


async def test_a_replica_that_is_not_heard_any_more_is_silent(store: Store, scene: Scene) -> None:
    """Its stored state is what it last said of itself."""
    for worker in ("there", "killed"):
        await scene.beat(worker)
    await scene.force(
        "UPDATE supervisor.worker SET heartbeat_at = heartbeat_at - interval '10 min'"
        " WHERE worker_id = 'killed'"
    )
    shown = (await read_status(store, confirm_after_seconds=300))["replicas"]
    assert {one["worker_id"]: (one["state"], one["contact"]) for one in shown} == {
        "there": ("active", "heard"),
        "killed": ("active", "silent"),
    }
    assert {one["contact"] for one in (await read_status(store, confirm_after_seconds=3600))["replicas"]} == {
        "heard"
    }


async def test_ended_runs_are_counted_over_a_day(store: Store, scene: Scene) -> None:
    await scene.lead()
    await scene.beat()
    await scene.job()
    old = await scene.run_to("SUCCEEDED")
    await scene.run_to("SUCCEEDED")
    await scene.force(
        "UPDATE supervisor.job_run SET created_at = clock_timestamp() - interval '25 hours' WHERE id = $1",
        old,
    )
    assert (await read_status(store))["runs"]["SUCCEEDED"] == 1


@pytest.mark.fresh_database
@pytest.mark.parametrize(
    "query", ["count_live_runs", "count_ended_runs", "list_confirming", "list_orphaned", "list_replicas"]
)
async def test_no_figure_reads_the_whole_history(database: Urls, scene: Scene, query: str) -> None:
    """R003-37: live states by their indexes also with cold statistics, recent history by its index."""
    await scene.job()
    await scene.force(
        "INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, state, version,"
        " max_attempts, created_at, finished_at, finished_by, started_at)"
        " SELECT n, n, 1, 'command', '{}', 'SUCCEEDED', 4, 3, now() - interval '30 days', now(), 'worker',"
        " now() FROM generate_series(1000, 20999) n"
    )
    if query == "count_ended_runs":
        await scene.connection.execute("ANALYZE supervisor.job_run")
    args = {"count_ended_runs": [str(ENDED_LIMIT)], "list_replicas": ["false"]}.get(query, ["10"])
    connection = await asyncpg.connect(database.control)
    try:
        sql = queries()[query].sql
        for place, value in enumerate(args, 1):
            sql = sql.replace(f"${place}", value)
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {sql}"))
    finally:
        await connection.close()
    assert "Seq Scan on job_run" not in plan, plan
    if query == "count_ended_runs":
        assert "Index Cond: (created_at >" in plan, plan


class Watch(Clock):
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


async def test_the_cache_reads_once_for_all_who_ask_within_its_time(store: Store, scene: Scene) -> None:
    clock = Watch()
    cache = StatusCache(store, clock=clock)
    assert (await cache.status())["leader"] is None
    await scene.lead()

    clock.time += 4.9
    seen = []

    async def ask() -> None:
        seen.append((await cache.status())["leader"])

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(ask)
    assert seen == [None] * 20

    clock.time += 0.2
    assert (await cache.status())["leader"] is not None
