"""The next attempt: when one is owed, that it is made once, and what it counts."""

from typing import Any

import asyncpg
import pytest

from tests.integration.sql.world import STOP_BOUND, Held, World
from tests.support.slowness import patient


async def failed(world: World, job: str = "work", **outcome: Any) -> Held:
    claim = await world.running(job=job)
    assert await world.worker.finish("w1", claim, **({"state": "FAILED", "error": "X"} | outcome)) == [
        "RECORDED"
    ]
    return claim


async def conflict(call: Any) -> str | None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await call
    return caught.value.sqlstate


async def test_the_next_attempt_is_a_new_row(world: World) -> None:
    """R003-46, C-52"""
    claim = await failed(world)
    [run] = await world.control.next_attempts()
    old, new = await world.row(claim.id), await world.row(run)
    assert old["next_attempt_id"] == run
    assert (new["root_id"], new["retry_of_id"], new["attempt"], new["starts"]) == (claim.id, claim.id, 2, 1)
    assert new["idempotency_key"] == f"retry:{claim.id}:2"
    assert new["scheduled_for"] is None
    assert (new["state"], new["version"], new["not_before"]) == ("PENDING", 1, old["retry_at"])
    assert (await world.history(run))[0]["reason"] == "NEXT_ATTEMPT"


async def test_a_second_leader_makes_no_second_row(world: World) -> None:
    """R003-26, H24: the same call again, and by the next leader."""
    await failed(world)
    assert len(await world.control.next_attempts()) == 1
    assert await world.control.next_attempts() == []
    await world.lead("l2")
    assert await world.control.next_attempts() == []


@pytest.mark.parametrize("commits", [True, False])
async def test_two_calls_at_once_make_one_row(world: World, commits: bool) -> None:
    """R003-26"""
    await failed(world)
    other = await world.hand("control")
    await world.control.begin()
    assert len(await world.control.next_attempts()) == 1
    second = await world.waiting(other, other.next_attempts())
    await (world.control.commit() if commits else world.control.rollback())
    assert len(await second) == (0 if commits else 1)
    assert await world.admin.value("SELECT count(*) FROM supervisor.job_run") == 2


async def test_attempts_are_contiguous_over_rows_and_reassignments(world: World) -> None:
    """R003-23, C-48: 1 at insert, + 1 at each reassignment in the row, + 1 in the next row."""
    claim = await world.assigned()
    await world.worker.release("w1", claim)
    second = await world.running(run=claim.id)
    assert second.attempt == 2
    await world.worker.finish("w1", second, state="FAILED", error="X")
    [run] = await world.control.next_attempts()
    third = await world.assigned(run=run)
    assert third.attempt == 3
    await world.worker.release("w1", third)
    assert (await world.running(run=run)).attempt == 4
    rows = await world.admin.sql(
        "SELECT DISTINCT attempt FROM supervisor.job_run_history WHERE root_id = $1 ORDER BY 1", claim.id
    )
    assert [row["attempt"] for row in rows] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("outcome", "max_attempts", "owed"),
    [
        ({"state": "SUCCEEDED", "error": None}, 3, False),
        ({"state": "CANCELED"}, 3, False),
        ({"state": "FAILED"}, 2, True),
        ({"state": "FAILED"}, 1, False),
        ({"state": "FAILED", "error": None}, 2, True),
        ({"state": "FAILED", "error": None}, 1, False),
        ({"state": "TIMED_OUT", "error": "TIMEOUT"}, 2, True),
        ({"state": "TIMED_OUT", "error": "TIMEOUT"}, 1, False),
        ({"state": "FAILED", "error": "DRAINED"}, 1, True),
    ],
)
async def test_when_an_attempt_is_owed(
    world: World, outcome: dict[str, Any], max_attempts: int, owed: bool
) -> None:
    """DESIGN section 3: starts < max_attempts, and a drained start is given back."""
    await world.job("some", max_attempts=max_attempts)
    claim = await failed(world, "some", **outcome)
    assert ((await world.row(claim.id))["retry_at"] is not None) is owed
    assert len(await world.control.next_attempts()) == owed


async def test_a_job_runs_max_attempts_times_and_no_more(world: World) -> None:
    """R003-46, H34: drained attempts come on top, failed ones count."""
    await world.job("thrice", max_attempts=3)
    claim = await failed(world, "thrice")
    for error in ("X", "DRAINED", "DRAINED", "X"):
        [run] = await world.control.next_attempts()
        claim = await world.running(run=run)
        await world.worker.finish("w1", claim, state="FAILED", error=error)
    assert await world.control.next_attempts() == []
    row = await world.row(claim.id)
    assert (row["starts"], row["attempt"]) == (3, 5)


async def test_after_a_cancel_request_nothing_is_owed(world: World) -> None:
    claim = await world.running()
    await world.control.request_cancel(claim.id)
    await world.worker.finish("w1", claim, state="FAILED", error="X")
    assert await world.control.next_attempts() == []


@pytest.mark.parametrize(
    ("error", "delay", "least", "most"),
    [
        ("X", 30.0, 29, 30),
        ("X", None, 0, 10),
        ("X", float("inf"), 31535000, 31536000),
        ("X", float("nan"), 0, 10),
        ("X", -5.0, -1, 0),
        ("DRAINED", 30.0, -1, 0),
    ],
)
async def test_when_the_next_attempt_is_due(
    world: World, error: str, delay: float | None, least: float, most: float
) -> None:
    """Back-off with jitter, or what the handler asked for, within reason; drained at once."""
    await world.job("slow", backoff_seconds=10)
    claim = await failed(world, "slow", error=error, delay=delay)
    wait = ((await world.row(claim.id))["retry_at"] - await world.instant()).total_seconds()
    assert least - patient(2) <= wait <= most


async def test_the_back_off_grows_to_its_bound(world: World) -> None:
    waits = await world.admin.sql(
        "SELECT n, max(extract(epoch FROM supervisor.retry_due('X', n, 1000, NULL, NULL, 10, 60) - "
        "clock_timestamp())) "
        "AS most FROM generate_series(1, 40) n, generate_series(1, 30) GROUP BY n"
    )
    for row in waits:
        bound = min(60, 10 * 2 ** (row["n"] - 1))
        assert bound / 2 < row["most"] <= bound


# assignments that never start


async def test_a_run_that_is_assigned_in_vain_too_often_ends(world: World) -> None:
    """ASSIGNMENTS_EXHAUSTED: two legal moves, both in the history."""
    await world.control.sql("SELECT supervisor.save_setting('anna', 'max_assignments', '2')")
    run = await world.run()
    for n in range(2):
        await world.worker.beat("w1")
        await world.assigned(run=run)
        assert await world.control.exhaust(run) == []
        await world.shift_run(run, "assigned_at", 100)
        await world.silence("w1", 100)
        assert await world.control.orphan(run, silent={"w1": await world.seq("w1")}) == [run]
        assert (await world.control.exhaust(run) == [run]) is (n == 1)
    row = await world.row(run)
    assert (row["state"], row["error_code"], row["starts"]) == ("CANCELED", "ASSIGNMENTS_EXHAUSTED", 0)
    assert (await world.path(run))[-3:] == ["ORPHANED", "ASSIGNED", "CANCELED"]
    assert row["retry_at"] is None


async def test_released_assignments_do_not_count(world: World) -> None:
    await world.control.sql("SELECT supervisor.save_setting('anna', 'max_assignments', '1')")
    claim = await world.assigned()
    await world.worker.release("w1", claim)
    assert await world.control.exhaust(claim.id) == []


# cancel


@pytest.mark.parametrize("state", ["PENDING", "ORPHANED"])
async def test_a_queued_run_is_canceled_by_two_moves(world: World, state: str) -> None:
    """C-54, R003-12"""
    run = await world.run()
    if state == "ORPHANED":
        await world.worker.release("w1", await world.assigned(run=run))
    assert await world.control.cancel(run) == []  # nobody asked
    assert await world.control.request_cancel(run)
    assert not await world.control.request_cancel(run)
    version = (await world.row(run))["version"]
    assert await world.control.cancel(run, versions=[version - 1]) == []
    assert await world.control.cancel(run) == [run]
    assert await world.control.cancel(run) == []
    assert (await world.path(run))[-3:] == [state, "ASSIGNED", "CANCELED"]
    assert (await world.row(run))["version"] == version + 2
    assert await world.admin.value("SELECT count(*) FROM supervisor.audit WHERE action = 'run.cancel'") == 1


async def test_an_assigned_run_is_canceled_at_once(world: World) -> None:
    """R003-12"""
    claim = await world.assigned()
    await world.control.request_cancel(claim.id)
    assert await world.control.cancel(claim.id) == [claim.id]
    assert await world.worker.start("w1", claim) == ["REFUSED"]


async def test_a_cancel_that_waits_for_the_start_leaves_it_to_the_worker(world: World) -> None:
    """Rule 24: the leader decided on an ASSIGNED run; now it runs, and its worker has D to end it."""
    claim = await world.assigned()
    await world.worker.begin()
    assert await world.worker.start("w1", claim) == ["RECORDED"]
    request = await world.waiting(world.control, world.control.request_cancel(claim.id))
    await world.worker.commit()
    assert await request
    assert await world.control.cancel(claim.id) == []
    assert await world.worker.finish("w1", await world.held(claim.id), state="CANCELED") == ["RECORDED"]


async def test_a_running_run_is_canceled_by_the_leader_after_d(world: World) -> None:
    """Rule 24"""
    claim = await world.running()
    await world.control.request_cancel(claim.id)
    assert await world.control.cancel(claim.id) == []
    await world.shift_run(claim.id, "cancel_requested_at", STOP_BOUND + 1)
    assert await world.control.cancel(claim.id) == [claim.id]
    assert await world.control.next_attempts() == []


async def test_what_has_ended_cannot_be_canceled(world: World) -> None:
    """R003-04"""
    claim = await failed(world)
    assert await conflict(world.control.request_cancel(claim.id)) == "TN021"
    assert await conflict(world.control.request_cancel(424242)) == "TN020"


# time out


async def test_a_run_over_its_time_is_ended_d_later(world: World) -> None:
    """R003-11: the worker has its time and D to do it itself."""
    await world.job("short", timeout_seconds=10)
    claim = await world.running(job="short")
    await world.shift_run(claim.id, "started_at", 10 + STOP_BOUND / 2)
    assert await world.control.time_out(claim.id) == []
    await world.shift_run(claim.id, "started_at", STOP_BOUND)
    assert await world.control.time_out(claim.id) == [claim.id]
    assert (await world.row(claim.id))["retry_at"] is not None


# retry on request


async def test_a_retry_on_request(world: World) -> None:
    """`run retry`: the leader makes the row, with one more attempt where they are used up; R003-55."""
    await world.job("once", max_attempts=1)
    claim = await failed(world, "once")
    assert await world.control.request_retry(claim.id)
    assert not await world.control.request_retry(claim.id)
    [run] = await world.control.next_attempts()
    assert (await world.row(run))["max_attempts"] == 2
    assert await world.control.next_attempts() == []
    again = await world.running(run=run)
    await world.worker.finish("w1", again)
    assert await world.admin.value("SELECT count(*) FROM supervisor.audit WHERE action = 'run.retry'") == 1


async def test_a_request_and_an_owed_attempt_make_one_row(world: World) -> None:
    claim = await failed(world)
    await world.control.request_retry(claim.id)
    assert len(await world.control.next_attempts()) == 1
    assert await world.admin.value("SELECT count(*) FROM supervisor.retry_request") == 0


async def test_a_canceled_run_may_be_retried(world: World) -> None:
    claim = await failed(world, state="CANCELED")
    await world.control.request_retry(claim.id)
    [run] = await world.control.next_attempts()
    row = await world.row(run)
    assert (row["cancel_requested_at"], row["max_attempts"]) == (None, 3)


async def test_what_cannot_be_retried(world: World) -> None:
    """R003-04: unknown, live, succeeded, not the newest, of a job that was removed."""
    assert await conflict(world.control.request_retry(424242)) == "TN020"
    live = await world.running()
    assert await conflict(world.control.request_retry(live.id)) == "TN021"
    await world.worker.finish("w1", live)
    assert await conflict(world.control.request_retry(live.id)) == "TN021"
    old = await failed(world)
    await world.control.next_attempts()
    assert await conflict(world.control.request_retry(old.id)) == "TN021"
    await world.job("temporary", max_attempts=1)
    left = await failed(world, "temporary")
    await world.control.sql("SELECT supervisor.remove_job('anna', 'temporary')")
    assert await conflict(world.control.request_retry(left.id)) == "TN021"


@pytest.mark.parametrize("owed", ["live", "retry", "request"])
async def test_a_job_with_work_left_is_not_removed(world: World, owed: str) -> None:
    """Nothing is left behind that could never run."""
    await world.job("temporary", max_attempts=1 if owed == "request" else 2)
    if owed == "live":
        await world.run("temporary")
    else:
        claim = await failed(world, "temporary")
        if owed == "request":
            await world.control.request_retry(claim.id)
    assert await conflict(world.control.sql("SELECT supervisor.remove_job('anna', 'temporary')")) == "TN021"
