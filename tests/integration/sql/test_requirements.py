"""Lines of docs/requirements.md that no other file proves."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest

from actors.command import ACTOR
from supervisor.claims import Claims
from supervisor.clock import boottime
from supervisor.config import Timings
from supervisor.identity import Identity
from supervisor.metrics import Metrics
from supervisor.runner import Runner
from supervisor.store import Record, Store
from supervisor.wakeups import Wakeups
from tests.integration.sql.world import CONFIRM_AFTER, STOP_BOUND, Held, World
from tests.support.eventually import eventually
from tests.support.scene import secret_of
from tests.support.stores import place_of

# optimistic locking


async def test_the_version_is_a_whole_number(world: World) -> None:
    """R003-02: there is always one, and it begins at 1."""
    kind = await world.admin.one(
        "SELECT data_type, is_nullable, column_default FROM information_schema.columns "
        "WHERE table_schema = 'supervisor' AND table_name = 'job_run' AND column_name = 'version'"
    )
    assert tuple(kind) == ("integer", "NO", "1")


async def orphanable(world: World) -> tuple[Held, str]:
    claim = await world.assigned()
    await world.shift_run(claim.id, "assigned_at", 100)
    await world.admin.sql("UPDATE supervisor.worker SET state = 'gone'")
    return claim, f"orphan($1, $2, $3, '{{}}', '{{}}', {CONFIRM_AFTER})"


async def overdue(world: World) -> tuple[Held, str]:
    await world.job("short", timeout_seconds=1)
    claim = await world.running(job="short")
    await world.shift_run(claim.id, "started_at", STOP_BOUND + 2)
    return claim, f"time_out($1, $2, $3, {STOP_BOUND})"


async def cancellable(world: World) -> tuple[Held, str]:
    claim = await world.assigned()
    await world.control.request_cancel(claim.id)
    return claim, f"cancel($1, 'l1', $2, $3, {STOP_BOUND})"


async def exhausted(world: World) -> tuple[Held, str]:
    claim = await world.assigned()
    await world.worker.release("w1", claim)
    await world.unguarded("UPDATE supervisor.job_run SET fruitless_assignments = 1000")
    return await world.held(claim.id), "exhaust($1, 'l1', $2, $3)"


@pytest.mark.parametrize("prepare", [orphanable, overdue, cancellable, exhausted])
async def test_a_decision_on_another_version_changes_nothing(
    world: World, prepare: Callable[[World], Awaitable[tuple[Held, str]]]
) -> None:
    """R003-03, R003-04: nothing is found, nothing is moved, and the row can be decided on anew."""
    claim, call = await prepare(world)
    before = await world.row(claim.id)

    async def decide(version: int) -> list[asyncpg.Record]:
        return await world.control.sql(f"SELECT * FROM supervisor.{call}", world.epoch, [claim.id], [version])

    assert await decide(before["version"] - 1) == []
    assert await world.row(claim.id) == before
    assert [row["id"] for row in await decide(before["version"])] == [claim.id]


async def test_a_start_matches_the_state(world: World) -> None:
    """R003-29: a row that is not ASSIGNED is not started, be its version and claim the right ones."""
    claim = await world.assigned()
    await world.unguarded(
        "UPDATE supervisor.job_run SET state = 'CANCELED', finished_at = now(), finished_by = 'leader'"
    )
    assert await world.worker.start("w1", claim) == ["REFUSED"]
    assert await world.state(claim.id) == "CANCELED"


# the worker itself


class NoTimer:
    def arm(self, deadline_boottime: float) -> None: ...

    def disarm(self) -> None: ...


class Interrupted(Store):
    """Something happens between the look for work and the start."""

    async def before_start(self) -> None: ...

    async def rows(self, query: Any, *args: Any, timeout: float | None = None) -> Sequence[Record]:
        if query == "start_runs":
            await self.before_start()
        return await super().rows(query, *args, timeout=timeout)


@asynccontextmanager
async def worker(world: World) -> AsyncIterator[tuple[Interrupted, Claims]]:
    """The runner of w1, with the real command actor; nothing beats for it."""
    store, timings = Interrupted(world.urls.worker, name="test/runner"), Timings(heartbeat=0.1, self_stop=600)
    claims = Claims(timings, NoTimer())
    runner = Runner(
        place_of(store, "w1"), Identity("w1", secret_of("w1")), {"command": ACTOR}, 10, timings, claims,
        Wakeups("w1"), Metrics(),
    )  # fmt: skip
    async with anyio.create_task_group() as group:
        group.start_soon(runner.run)
        try:
            yield store, claims
        finally:
            group.cancel_scope.cancel()
    await store.close()


async def test_a_refused_start_starts_no_process(world: World, tmp_path: Path) -> None:
    """R003-30: taken away between the look and the start; a second run shows that the worker works."""
    refused, accepted = tmp_path / "refused", tmp_path / "accepted"
    await world.job("first", payload={"argv": ["touch", str(refused)]})
    await world.job("second", payload={"argv": ["touch", str(accepted)]})
    taken = await world.assigned(job="first")
    async with worker(world) as (store, claims):
        gone = anyio.Event()

        async def take_away() -> None:
            if not gone.is_set():
                assert await world.worker.release("w1", taken) == 1
                gone.set()

        store.before_start = take_away  # type: ignore[method-assign]
        await eventually(gone.is_set)
        await eventually(lambda: len(claims) == 0, what="the refused claim to be dropped")
        await world.assigned(job="second")
        await eventually(accepted.exists)
        await eventually(lambda: len(claims) == 0, what="the second run to be reported")
    assert not refused.exists()
    assert await world.path(taken.id) == ["PENDING", "ASSIGNED", "ORPHANED"]


async def test_a_worker_that_is_not_confirmed_stops_and_says_so(world: World, tmp_path: Path) -> None:
    """R003-43, R003-45, R003-46: no answer until the stop deadline: the process ends, the attempt is recorded
    as TIMED_OUT by the worker, and the leader makes attempt 2.
    """
    pid_file = tmp_path / "pid"
    script = f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 60"
    await world.job("long", payload={"argv": ["sh", "-c", script]})
    claim = await world.assigned(job="long")
    async with worker(world) as (_, claims):
        await eventually(pid_file.exists)
        pid = int(pid_file.read_text())
        assert Path(f"/proc/{pid}").exists()
        claims.enforce(boottime() + 700)

        async def recorded() -> bool:
            return await world.state(claim.id) == "TIMED_OUT"

        await eventually(recorded)
        assert not Path(f"/proc/{pid}").exists()
    row = await world.row(claim.id)
    assert (row["finished_by"], row["error_code"]) == ("worker", "CONTINUATION_LOST")
    assert row["executor_stopped_at"] is not None
    [again] = await world.control.next_attempts()
    assert (await world.row(again))["attempt"] == 2


# reassignment


async def test_the_setting_says_when_an_assignment_is_old(world: World) -> None:
    """R003-39, R003-54: reassign_after_seconds, as it is at the time of the call."""
    claim = await world.assigned()
    await world.shift_run(claim.id, "assigned_at", 100)
    await world.admin.sql("UPDATE supervisor.worker SET state = 'gone'")
    await world.control.sql("SELECT supervisor.save_setting('anna', 'reassign_after_seconds', '1000')")
    assert await world.control.orphan(claim.id) == []
    await world.control.sql("SELECT supervisor.save_setting('anna', 'reassign_after_seconds', '90')")
    assert await world.control.orphan(claim.id) == [claim.id]


@pytest.mark.parametrize("asked", [False, True])
async def test_what_runs_is_never_orphaned(world: World, asked: bool) -> None:
    """R003-41, R003-42: old, and its worker gone; it is asked about, and then waited for."""
    claim = await (world.confirming() if asked else world.running())
    await world.shift_run(claim.id, "assigned_at", 100)
    await world.silence("w1", 100)
    await world.admin.sql("UPDATE supervisor.worker SET state = 'gone'")
    silent = {"w1": await world.seq("w1")}
    assert await world.control.orphan(claim.id, silent=silent) == []
    assert [row["id"] for row in await world.control.confirm(silent)] == ([] if asked else [claim.id])
    assert (await world.row(claim.id))["continuation_state"] == "CONFIRMING"


async def test_a_run_over_its_time_is_not_taken_while_it_is_confirming(world: World) -> None:
    """R003-42: the question that was asked comes first."""
    await world.job("short", timeout_seconds=1)
    claim = await world.confirming(job="short")
    await world.shift_run(claim.id, "started_at", STOP_BOUND + 100)
    assert await world.control.time_out(claim.id) == []
    await world.worker.beat("w1", claim)
    assert await world.control.time_out(claim.id) == [claim.id]


async def test_forbid_counts_an_attempt_that_is_owed(world: World) -> None:
    """R003-47: between a failed attempt and the next one no other run of the job comes in."""
    await world.job("alone", concurrency=1, concurrency_policy="forbid", max_attempts=2, backoff_seconds=60)
    claim = await world.running(job="alone")
    await world.worker.finish("w1", claim, state="FAILED", error="X")
    with pytest.raises(asyncpg.PostgresError, match="forbids"):
        await world.run("alone")
    before = await world.row(claim.id)
    [again] = await world.control.next_attempts()
    with pytest.raises(asyncpg.PostgresError, match="forbids"):
        await world.run("alone")
    after = await world.row(claim.id)
    assert {**after, "next_attempt_id": None} == dict(before)
    assert (after["state"], after["next_attempt_id"]) == ("FAILED", again)


# events and operators


async def test_an_event_is_not_processed_again(world: World) -> None:
    """R003-38: posted, processed, posted again with its key, looked at again: one event, one run."""
    await world.job("one", event_type="tick")
    post, look = (
        "SELECT * FROM supervisor.emit('tick', '{}', 'k')",
        "SELECT * FROM supervisor.process_events($1, 9)",
    )
    first = await world.control.one(post)
    assert [row["runs"] for row in await world.control.sql(look, world.epoch)] == [1]
    assert tuple(await world.control.one(post)) == (first["id"], False)
    assert await world.control.sql(look, world.epoch) == []
    assert await world.admin.value("SELECT count(*) FROM supervisor.job_run") == 1


ACTIONS = {
    "run.cancel": "request_cancel('anna', {live})",
    "run.retry": "request_retry('anna', {ended})",
    "worker.drain": "request_drain('anna', 'w1')",
    "leader.resign": "request_resign('anna')",
    "setting.set": "save_setting('anna', 'max_assignments', '7')",
    "domain.pause": "pause_domain('anna', 'command', true)",
    "job.add": "save_job('anna', 'new', '{{\"domain\": \"command\"}}', true)",
    "job.set": "save_job('anna', 'unused', '{{\"priority\": 7}}', false)",
    "job.remove": "remove_job('anna', 'unused')",
}


@pytest.mark.parametrize("action", ACTIONS)
async def test_each_action_of_an_operator_is_in_the_audit(world: World, action: str) -> None:
    """R003-55: who, what, on what; in the transaction of the action itself."""
    await world.job("unused")
    ended = await world.running()
    await world.worker.finish("w1", ended, state="CANCELED")
    live = await world.run()
    call = f"SELECT * FROM supervisor.{ACTIONS[action]}".format(live=live, ended=ended.id)
    wanted = "SELECT count(*) FROM supervisor.audit WHERE action = $1 AND actor = 'anna' AND target <> ''"
    before = await world.admin.value(wanted, action)
    await world.control.begin()
    await world.control.sql(call)
    await world.control.rollback()
    assert await world.admin.value(wanted, action) == before
    await world.control.sql(call)
    assert await world.admin.value(wanted, action) == before + 1
