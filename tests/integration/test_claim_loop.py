"""The claim loop over real tables: what is worked on, kept, lost, given back and reported."""

import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from supervisor import Actor, Cancel, Claim, Done, Lease, Outcome, Retry, Snooze, Tools
from supervisor.actor import Place as GivenPlace
from supervisor.claim_loop import IDLE_SECONDS, ClaimLoop
from supervisor.clock import boottime
from supervisor.config import Timings
from supervisor.embedded import Urls
from supervisor.errors import BadSettings
from supervisor.keeper import Keeper
from supervisor.metrics import Metrics
from supervisor.store import Store
from supervisor.wakeups import Wakeups
from tests.support.eventually import eventually
from tests.support.example_domain import JOBS, SESSIONS, THUMBS, migration
from tests.support.example_domain.install import apply_as_owner
from tests.support.example_domain.replica import NOTES
from tests.support.proxy import Proxy
from tests.support.replica import replica, timings
from tests.support.row_work import LEASE_SECONDS, NoTimer
from tests.support.sessions import connected, value
from tests.support.slowness import stretch
from tests.support.stores import place_of

Handler = Callable[[Claim, Tools], Awaitable[Outcome]]


@pytest.fixture
async def example(database: Urls) -> Urls:
    await apply_as_owner(database, migration())
    return database


@dataclass
class Place:
    """One claim loop at work, and the table it works on."""

    urls: Urls
    loop: ClaimLoop
    wakeups: Wakeups
    metrics: Metrics

    def figure(self, name: str, table: str = "example.jobs") -> float:
        return self.metrics.registry.get_sample_value(name, {"table": table}) or 0.0

    async def ask(self, query: str, *arguments: object) -> Any:
        return await value(self.urls.admin, query, *arguments)

    async def jobs(self) -> dict[int, Mapping[str, Any]]:
        async with connected(self.urls.admin) as admin:
            rows = await admin.fetch("SELECT * FROM example.jobs ORDER BY id")
        return {row["id"]: dict(row) for row in rows}

    async def states(self) -> list[str]:
        return [str(row["status"]) for row in (await self.jobs()).values()]


@asynccontextmanager
async def at_work(
    urls: Urls,
    handle: Handler,
    *,
    lease: Lease = JOBS,
    seconds: float = 0.0,
    kill_seconds: float = 0.3,
    slots: int = 2,
    through: str = "",
    **more: Any,
) -> AsyncIterator[Place]:
    """`seconds`: of the lease; LEASE_SECONDS, and longer on a slow machine, unless a test says more."""
    seconds = seconds or LEASE_SECONDS * stretch()
    store, wakeups, metrics = Store(through or urls.worker, name="test"), Wakeups("me"), Metrics()
    actor = Actor("example", handle, lease=replace(lease, lease_seconds=seconds), slots=slots, **more)
    timings = Timings(kill=kill_seconds, stop_bound=seconds)
    loop = ClaimLoop(actor, place_of(store), 8, timings, NoTimer(), wakeups, metrics)
    keeper = Keeper(through or urls.worker, "me", [loop.kept])
    keeper.start()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(loop.run)
            yield Place(urls, loop, wakeups, metrics)
            group.cancel_scope.cancel()
    finally:
        keeper.stop()
        await store.close()


async def insert(urls: Urls, *payloads: str, kind: str = "scan") -> None:
    async with connected(urls.admin) as admin:
        await admin.executemany(
            "INSERT INTO example.jobs (kind, payload) VALUES ($1, $2)",
            [(kind, one) for one in payloads or ("{}",)],
        )


@dataclass
class Work:
    """A handler that notes what happens to it and goes on until it is let go."""

    seen: list[Any] = field(default_factory=list)
    ended: dict[Any, tuple[str, float]] = field(default_factory=dict)
    running: int = 0
    most: int = 0
    let_go: anyio.Event = field(default_factory=anyio.Event)

    async def __call__(self, claim: Claim, _tools: Tools) -> Outcome:
        self.seen.append(claim.key)
        self.running += 1
        self.most = max(self.most, self.running)
        how = "stopped"
        try:
            await self.let_go.wait()
            how = "done"
            return Done()
        finally:
            self.running -= 1
            self.ended[claim.key] = (how, boottime())


async def test_each_outcome_takes_its_path(example: Urls) -> None:
    """Values, errors, refusals by the contract and by the table: each is recorded, none stops the others."""

    async def handle(claim: Claim, _tools: Tools) -> Outcome:
        match claim.payload["payload"]["say"]:
            case "done":
                return Done({"progress": 1.0})
            case "retry":
                return Retry("BROKEN", "the disk is gone")
            case "cancel":
                return Cancel("not wanted")
            case "raise":
                raise RuntimeError("oh")
            case "foreign":
                return Done({"dry_run": False})
            case "beyond":
                return Done({"progress": 7.0})
            case _:
                return Done({"progress": "many"})

    says = ["done", "retry", "cancel", "raise", "foreign", "beyond", "type"]
    await insert(example, *(f'{{"say": "{say}"}}' for say in says))
    async with at_work(example, handle, slots=8) as place:

        async def all_ended() -> bool:
            return not {"pending", "running"} & set(await place.states())

        await eventually(all_ended)
        rows = list((await place.jobs()).values())
        assert [(row["status"], row["error_code"]) for row in rows] == [
            ("completed", None),
            ("failed", "BROKEN"),
            ("cancelled", "CANCELED_BY_HANDLER"),
            ("failed", "HANDLER_ERROR"),
            ("failed", "OUTCOME_REFUSED"),
            ("failed", "OUTCOME_REFUSED"),
            ("failed", "OUTCOME_REFUSED"),
        ]
        assert rows[0]["progress"] == 1.0
        assert rows[1]["error_message"] == "the disk is gone"
        assert all(row["lease_expires_at"] is None and row["worker_id"] == "me" for row in rows)
        await eventually(lambda: place.loop.held == 0)
        assert place.figure("tenure_leases_held") == 0


async def test_a_row_whose_json_cannot_be_read_fails_and_stops_no_other(example: Urls) -> None:
    async def handle(_claim: Claim, _tools: Tools) -> Outcome:
        await anyio.lowlevel.checkpoint()
        return Done()

    await insert(example, '{"x": 1e5000}', f'{{"x": {"[" * 3000}{"]" * 3000}}}', "{}")
    async with at_work(example, handle, slots=1) as place:

        async def all_ended() -> bool:
            return not {"pending", "running"} & set(await place.states())

        await eventually(all_ended)
        rows = list((await place.jobs()).values())
    assert [(row["status"], row["error_code"]) for row in rows] == [
        ("failed", "UNREADABLE"),
        ("failed", "UNREADABLE"),
        ("completed", None),
    ]


async def test_retries_are_put_off_and_bounded_and_a_snooze_counts_nothing(example: Urls) -> None:
    async def handle(claim: Claim, _tools: Tools) -> Outcome:
        assert isinstance(claim.key, tuple)
        return Snooze(3600) if claim.key[1] == 2 else Retry("AGAIN", "", 0.0)

    async with connected(example.admin) as admin:
        await admin.execute("INSERT INTO example.thumbs (library_id, file_id) VALUES (1, 1), (1, 2)")
    async with at_work(example, handle, lease=THUMBS) as place:
        query = "SELECT error_count FROM example.thumbs WHERE file_id = 1 AND status = 'dead'"
        assert await eventually(lambda: place.ask(query)) == 3
        snoozed = "SELECT extract(epoch FROM retry_after - now()) FROM example.thumbs WHERE file_id = 2"
        assert 3500 < float(await place.ask(snoozed)) <= 3600
        assert await place.ask("SELECT error_count FROM example.thumbs WHERE file_id = 2") == 0


async def test_what_is_published_along_is_there_exactly_once(example: Urls) -> None:
    """R004-43, R004-44: the row that publishes the result and the outcome are one transaction."""

    async def handle(claim: Claim, _tools: Tools) -> Outcome:
        return Done({"body": f"for {claim.payload['user_id']}"})

    async with connected(example.admin) as admin:
        await admin.execute("INSERT INTO example.sessions (user_id) SELECT generate_series(1, 20)")
    async with at_work(example, handle, lease=SESSIONS, ahead=20) as place:
        await eventually(lambda: place.ask("SELECT count(*) = 20 FROM example.sessions WHERE state = 'done'"))
        assert await place.ask("SELECT count(*) FROM example.notes WHERE body LIKE 'for %'") == 20


async def test_no_more_is_held_than_there_is_room_for(example: Urls) -> None:
    await insert(example, *["{}"] * 10)
    work = Work()
    async with at_work(example, work, slots=2, ahead=3) as place:
        await eventually(lambda: place.loop.held == 5 and len(work.seen) == 2)
        await anyio.sleep(0.5)  # time to take more, if it would
        assert sorted(await place.states()).count("running") == 5
        assert place.figure("tenure_leases_held") == 5
        assert len(work.seen) == 2
        work.let_go.set()
        await eventually(lambda: len(work.ended) == 10)
        assert work.most == 2
        assert work.seen == sorted(work.seen)


async def test_what_calls_share_is_opened_once_and_closed_when_the_last_has_ended(example: Urls) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def equip(place: GivenPlace) -> AsyncIterator[str]:
        events.append(f"opened for {place.worker_id}")
        try:
            yield "used"
        finally:
            events.append("closed")

    async def handle(claim: Claim, tools: Tools) -> Outcome:
        events.append(tools.equipment)
        try:
            await anyio.sleep(3600 if claim.key == 3 else 0)
        finally:
            events.append("ended")
        return Done()

    await insert(example, *["{}"] * 3)
    async with at_work(example, handle, slots=1, equip=equip):
        await eventually(lambda: events.count("used") == 3)
    assert events == ["opened for me", "used", "ended", "used", "ended", "used", "ended", "closed"]


async def test_a_hint_wakes_an_idle_loop_and_polling_needs_none(
    example: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 17: a hint makes it quick; without one it happens all the same."""
    monkeypatch.setattr("supervisor.claim_loop.BUSY_SECONDS", 3600)
    monkeypatch.setattr("supervisor.claim_loop.IDLE_SECONDS", 3600)
    work = Work()
    work.let_go.set()
    async with at_work(example, work) as place:
        await eventually(lambda: place.loop._store._idle, what="the answer that there is nothing")
        await insert(example)
        monkeypatch.undo()
        place.wakeups.heard("lease:example.jobs")
        await eventually(lambda: len(work.ended) == 1, what="the hint to be heard")
        await insert(example)
        await eventually(lambda: len(work.ended) == 2, what="the next look")


async def test_long_work_keeps_its_lease_also_while_the_loop_is_blocked(example: Urls) -> None:
    """R000-30, rule 21: heartbeats have a thread of their own."""
    outcomes: list[str] = []
    seconds = LEASE_SECONDS * stretch()

    async def handle(_claim: Claim, tools: Tools) -> Outcome:
        first = tools.stop_deadline()
        tools.progress(processed_items=5)
        time.sleep(seconds * 1.5)  # blocking the loop is the point
        await anyio.sleep(seconds * 0.7)
        outcomes.append("moved" if tools.stop_deadline() > first + seconds else "stood")
        return Done()

    await insert(example)
    async with at_work(example, handle, seconds=seconds) as place:

        async def completed() -> bool:
            return await place.states() == ["completed"]

        await eventually(completed, timeout=15)
        assert outcomes == ["moved"]
        assert await place.ask("SELECT processed_items FROM example.jobs") == 5
        assert place.figure("tenure_leases_lost_total") == 0


async def test_a_bad_value_of_progress_costs_nobody_the_lease(example: Urls) -> None:
    seconds = LEASE_SECONDS * stretch()

    async def handle(_claim: Claim, tools: Tools) -> Outcome:
        tools.progress(progress=42.0)
        await anyio.sleep(seconds * 1.5)
        return Done()

    await insert(example, "{}", "{}")
    async with at_work(example, handle, seconds=seconds) as place:

        async def completed() -> bool:
            return await place.states() == ["completed", "completed"]

        await eventually(completed, timeout=15)


async def test_work_whose_lease_was_taken_is_stopped_and_says_nothing(example: Urls) -> None:
    """R000-22: whatever the handler would have said, the row belongs to whoever recovered it."""
    await insert(example)
    work = Work()
    async with at_work(example, work) as place:
        await eventually(lambda: work.running == 1)
        async with connected(example.admin) as admin:
            await admin.execute(
                "UPDATE example.jobs SET status = 'retryable', claim_id = NULL, worker_id = NULL"
            )
        before = await place.jobs()
        await eventually(lambda: len(work.ended) == 1)
        assert [how for how, _ in work.ended.values()] == ["stopped"]
        await eventually(lambda: place.loop.held == 0)
        assert await place.jobs() == before
        assert place.figure("tenure_leases_lost_total") == 1


async def test_a_handler_that_answers_a_stop_with_success_is_not_believed(example: Urls) -> None:
    async def handle(_claim: Claim, _tools: Tools) -> Outcome:
        with suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()
        return Done({"progress": 1.0})

    await insert(example)
    async with at_work(example, handle) as place:
        await eventually(lambda: place.loop.held == 1)
        async with connected(example.admin) as admin:
            await admin.execute("UPDATE example.jobs SET claim_id = NULL")
        await eventually(lambda: place.loop.held == 0)
        assert await place.ask("SELECT progress FROM example.jobs") == 0
        assert place.figure("tenure_leases_lost_total") == 1
        assert place.metrics.registry.get_sample_value("tenure_late_finishes_total") == 0


async def test_cut_off_work_stops_before_its_lease_is_over(example: Urls) -> None:
    """H27: nobody else can claim the row while it is still being worked on here."""
    await insert(example)
    work, unit = Work(), stretch()
    lease, kill = LEASE_SECONDS * unit, unit
    async with (
        Proxy(example.worker) as proxy,
        at_work(example, work, seconds=lease, kill_seconds=kill, through=proxy.url) as place,
    ):
        await eventually(lambda: work.running == 1)
        proxy.cut()
        claimed = await place.ask(
            "SELECT extract(epoch FROM clock_timestamp() - worker_heartbeat_at) FROM example.jobs"
        )
        over = boottime() - float(claimed) + lease
        await eventually(lambda: len(work.ended) == 1, timeout=lease + 2)
        how, at = next(iter(work.ended.values()))
        assert how == "stopped"
        assert over - 2 * lease < at <= over - kill / 2
        await proxy.heal()


async def test_rows_of_a_claim_whose_answer_was_lost_are_not_left_lying(
    example: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 12: the outcome of the call is unknown, so what it may have taken is given back."""
    monkeypatch.setattr("supervisor.claim_loop.BUSY_SECONDS", IDLE_SECONDS)  # it asks once, then waits
    work = Work()
    work.let_go.set()
    async with (
        Proxy(example.worker) as proxy,
        at_work(example, work, seconds=600, through=proxy.url) as place,
    ):
        # answered, and none in flight: a claim caught by the cut would wait for its time-out, then give back
        await eventually(lambda: place.loop._store._idle, interval=0.01)
        proxy.cut_replies()
        await insert(example, "{}", "{}")
        place.wakeups.heard("lease:example.jobs")

        async def taken() -> bool:
            return await place.states() == ["running", "running"]

        await eventually(taken)
        await proxy.close()
        await proxy.heal()

        async def completed() -> bool:
            return await place.states() == ["completed", "completed"]

        await eventually(completed, timeout=20)


async def test_an_outcome_is_repeated_until_it_is_answered(example: Urls) -> None:
    await insert(example)
    work = Work()
    work.let_go.set()
    async with (
        Proxy(example.worker) as proxy,
        at_work(example, work, seconds=600, slots=1, through=proxy.url) as place,
    ):
        await eventually(lambda: len(work.ended) == 1 and place.loop.held == 0)  # its statements are prepared
        work.let_go = anyio.Event()
        await insert(example)
        place.wakeups.heard("lease:example.jobs")
        await eventually(lambda: work.running == 1)
        proxy.cut_replies()
        work.let_go.set()

        async def completed() -> bool:
            return await place.states() == ["completed", "completed"]

        await eventually(completed)
        recorded = await place.jobs()
        assert place.loop.held == 1
        await proxy.close()
        await proxy.heal()
        await eventually(lambda: place.loop.held == 0, timeout=15)
        assert await place.jobs() == recorded
        assert place.metrics.registry.get_sample_value("tenure_late_finishes_total") == 0


async def test_draining_gives_back_what_waits_and_stops_what_runs(example: Urls) -> None:
    """Rule 20."""
    await insert(example, *["{}"] * 6)
    work = Work()
    async with at_work(example, work, slots=2, ahead=2) as place:
        await eventually(lambda: place.loop.held == 4 and work.running == 2)
        begun = boottime()
        await place.loop.drain(1.0)
        assert [how for how, _ in work.ended.values()] == ["stopped", "stopped"]
        assert min(at for _, at in work.ended.values()) >= begun + 1, "the grace was not given"
        given_back = {key: row["updated_at"] for key, row in (await place.jobs()).items()}
        ran = {given_back.pop(key) for key in work.seen}
        assert min(ran) - max(given_back.values()) >= timedelta(seconds=1), "what waited, waited for the rest"
        assert await place.states() == ["pending"] * 6
        assert await place.ask("SELECT count(*) FROM example.jobs WHERE worker_id IS NOT NULL") == 0
        assert place.loop.held == 0


async def test_draining_lets_work_end_within_the_grace(example: Urls) -> None:
    await insert(example)
    work = Work()
    async with at_work(example, work) as place:
        await eventually(lambda: work.running == 1)
        async with anyio.create_task_group() as group:
            group.start_soon(place.loop.drain, 600.0)
            await anyio.sleep(0.2)
            work.let_go.set()
        assert await place.states() == ["completed"]


async def test_leases_of_the_dead_are_recovered_by_the_living(example: Urls) -> None:
    """R000-24."""
    await insert(example)
    async with connected(example.admin) as admin:
        await admin.execute(
            "UPDATE example.jobs SET status = 'running', worker_id = 'dead', claim_id = gen_random_uuid(), "
            "worker_heartbeat_at = now(), lease_expires_at = now() + interval '1 second'"
        )
    async with at_work(example, Work()) as place:

        async def recovered() -> bool:
            return await place.states() == ["retryable"]

        await eventually(recovered, timeout=15)
        await eventually(lambda: place.figure("tenure_leases_recovered_total") == 1)
        assert await place.ask("SELECT error_code FROM example.jobs") == "LEASE_EXPIRED"


async def test_heartbeats_and_outcomes_do_not_get_in_each_others_way(
    example: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both lock rows of one replica at the same time; in one order, so that neither is ever refused."""
    await insert(example, *["{}"] * 3000)

    async def handle(_claim: Claim, _tools: Tools) -> Outcome:
        await anyio.lowlevel.checkpoint()
        return Done()

    monkeypatch.setattr("supervisor.keeper.BEATS_PER_LEASE", 300)
    async with at_work(example, handle, slots=50, ahead=500) as place:

        async def all_done() -> bool:
            return set(await place.states()) == {"completed"}

        await eventually(all_done, timeout=60)
        assert place.metrics.registry.get_sample_value("tenure_late_finishes_total") == 0
        assert place.figure("tenure_leases_lost_total") == 0


async def test_a_lease_shorter_than_the_stop_bound_is_refused() -> None:
    actor, timings = Actor("example", Work(), lease=JOBS), Timings(stop_bound=JOBS.lease_seconds + 0.1)
    with pytest.raises(BadSettings, match=r"example\.jobs"):
        ClaimLoop(actor, place_of(Store("postgresql://")), 1, timings, NoTimer(), Wakeups("me"), Metrics())


COMMAND = (sys.executable, "-m", "tests.support.example_domain.replica")
# the lease of the example's replica is fixed, so the stop bound is too
ENV = {"PYTHONPATH": str(Path.cwd()), **timings()}


@pytest.mark.slow
async def test_a_stopped_replica_never_wakes_up_to_go_on(example: Urls, tmp_path: Path) -> None:
    """Rule 11: frozen beyond its lease it is dead before it can act; another replica takes the stale row."""
    notes = tmp_path / "notes"
    env = {NOTES: str(notes), **ENV}
    await insert(example, '{"seconds": 60}')
    async with replica(example, tmp_path, env=env, command=COMMAND) as first:

        def begun() -> bool:
            assert notes.exists(), first.output()[-2000:]
            assert "alive" in notes.read_text(), first.output()[-2000:]
            return True

        await eventually(begun, timeout=30)
        first.freeze()
        async with replica(example, tmp_path, env=env, command=COMMAND):

            async def recovered() -> bool:
                return bool(await value(example.admin, "SELECT status = 'retryable' FROM example.jobs"))

            await eventually(recovered, timeout=22)
            lines = notes.read_text()
            first.thaw()
            assert await first.wait(5) == -signal.SIGKILL
            assert notes.read_text() == lines


@pytest.mark.slow
async def test_a_replica_drains_its_rows(example: Urls, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    env = {NOTES: str(notes), "TENURE_DRAIN_SECONDS": "1", **ENV}
    await insert(example, '{"seconds": 60}', '{"seconds": 0}')
    async with replica(example, tmp_path, env=env, command=COMMAND) as one:

        async def one_is_left() -> bool:
            query = "SELECT string_agg(status, ',' ORDER BY id) = 'running,completed' FROM example.jobs"
            assert await value(example.admin, query), one.output()[-2000:]
            return True

        await eventually(one_is_left, timeout=30)
        assert 'tenure_leases_held{table="example.jobs"} 1.0' in (await one.get("/metrics")).text
        assert await one.stop() == 0
    assert (
        await value(example.admin, "SELECT string_agg(status, ',' ORDER BY id) FROM example.jobs")
        == "pending,completed"
    )
