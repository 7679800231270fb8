"""No attempt, and no concurrency slot, is given out while an earlier executor may still run: rule 10."""

import pytest

from tests.integration.sql.world import STOP_BOUND, Held, World


async def canceled(world: World, job: str = "work") -> Held:
    claim = await world.running(job=job)
    await world.control.request_cancel(claim.id)
    await world.shift_run(claim.id, "cancel_requested_at", STOP_BOUND + 1)
    assert await world.control.cancel(claim.id) == [claim.id]
    return claim


async def timed_out(world: World, job: str = "work") -> Held:
    claim = await world.running(job=job)
    await world.unguarded(f"UPDATE supervisor.job_run SET timeout_seconds = 1 WHERE id = {claim.id}")
    await world.shift_run(claim.id, "started_at", STOP_BOUND + 2)
    assert await world.control.time_out(claim.id) == [claim.id]
    return claim


async def ended_by_the_leader(world: World, how: str, job: str = "work") -> Held:
    """An attempt that the leader ended while its worker, w1, lives and may still execute it."""
    if how == "expiry":
        claim = await world.lost("w1", job)
    else:
        claim = await (canceled(world, job) if how == "cancel" else timed_out(world, job))
    await world.worker.beat("w1", claim)
    await world.worker.beat("w2")
    return claim


async def again(world: World, claim: Held) -> int:
    if (await world.row(claim.id))["state"] == "CANCELED":
        await world.control.request_retry(claim.id)
    [run] = await world.control.next_attempts()
    await world.unguarded(f"UPDATE supervisor.job_run SET not_before = clock_timestamp() WHERE id = {run}")
    return run


HOW = ["expiry", "cancel", "timeout"]


@pytest.mark.parametrize("how", HOW)
async def test_the_next_attempt_waits_for_the_stop_of_the_last(world: World, how: str) -> None:
    """H14, Q0, R003-47: a beat that no longer names it frees the way."""
    claim = await ended_by_the_leader(world, how)
    run = await again(world, claim)
    assert await world.control.assign(run, "w2") == []
    assert await world.control.read_due() == []
    await world.worker.beat("w1")
    assert await world.control.read_due() == [run]
    assert await world.control.assign(run, "w2") == [run]


@pytest.mark.parametrize("how", HOW)
async def test_a_refused_finish_frees_the_way(world: World, how: str) -> None:
    """H14"""
    claim = await ended_by_the_leader(world, how)
    run = await again(world, claim)
    assert await world.worker.finish("w1", claim) == ["SUPERSEDED"]
    assert await world.control.assign(run, "w2") == [run]


@pytest.mark.parametrize("how", HOW)
async def test_silence_frees_the_way_by_both_keys_only(world: World, how: str) -> None:
    """H14, J1: D by the database's clock, and the beat_seq that the leader watched for D."""
    claim = await ended_by_the_leader(world, how)
    run = await again(world, claim)
    seq = await world.seq("w1")
    assert await world.control.assign(run, "w2", silent={"w1": seq}) == []  # heard just now
    await world.silence("w1", STOP_BOUND + 1)
    assert await world.control.assign(run, "w2") == []  # not watched
    assert await world.control.assign(run, "w2", silent={"w1": seq - 1}) == []  # it beat since
    assert await world.control.read_due(silent={"w1": seq}) == [run]
    assert await world.control.assign(run, "w2", silent={"w1": seq}) == [run]


async def test_an_assignment_that_waits_for_a_beat_is_not_made(world: World) -> None:
    """H14: the beat was in flight while the leader decided that the worker is silent."""
    claim = await ended_by_the_leader(world, "expiry")
    run, seq = await again(world, claim), await world.seq("w1")
    await world.silence("w1", STOP_BOUND + 1)
    await world.worker.begin()
    await world.worker.beat("w1", claim)
    assign = await world.waiting(world.control, world.control.assign(run, "w2", silent={"w1": seq}))
    await world.worker.commit()
    assert await assign == []


async def test_without_the_quiesce_two_executors(world: World) -> None:
    """Q0: the guard taken out: w2 starts what w1 still executes."""
    await world.without_guard("root_quiesced", "SELECT NOT EXISTS", "SELECT true OR NOT EXISTS")
    claim = await ended_by_the_leader(world, "timeout")
    run = await again(world, claim)
    assert await world.control.assign(run, "w2") == [run]
    assert await world.worker.start("w2", await world.held(run)) == ["RECORDED"]
    assert (await world.row(claim.id))["executor_stopped_at"] is None


async def test_the_way_is_not_free_around_an_attempt_that_never_started(world: World) -> None:
    """H14 over the whole root: attempt 2 was canceled before it started, and attempt 1 may still execute."""
    first = await ended_by_the_leader(world, "expiry")
    second = await again(world, first)
    await world.control.request_cancel(second)
    assert await world.control.cancel(second) == [second]
    third = await again(world, await world.held(second))
    assert await world.control.assign(third, "w2") == []
    assert await world.control.read_due() == []
    await world.worker.beat("w1")
    assert await world.control.assign(third, "w2") == [third]


async def test_an_attempt_that_was_never_started_holds_nothing_up(world: World) -> None:
    """Rule 10"""
    claim = await world.assigned("w1")
    await world.control.request_cancel(claim.id)
    assert await world.control.cancel(claim.id) == [claim.id]
    run = await again(world, claim)
    assert await world.control.assign(run, "w1") == [run]


# the concurrency slot


async def test_the_limit_of_a_definition_holds(world: World) -> None:
    await world.job("pair", concurrency=2)
    await world.worker.beat("w1")
    runs = [await world.run("pair") for _ in range(4)]
    assert await world.control.assign(runs, "w1") == runs[:2]
    assert await world.control.assign(runs[2:], "w1") == []
    assert await world.control.read_due() == []
    for held in await world.worker.assigned("w1"):
        await world.worker.start("w1", held)
    assert await world.control.assign(runs[2:], "w1") == []
    await world.worker.finish("w1", await world.held(runs[0]))
    assert await world.control.assign(runs[2:], "w1") == [runs[2]]


@pytest.mark.parametrize("commits", [True, False])
async def test_two_assignments_do_not_share_one_slot(world: World, commits: bool) -> None:
    """Rule 12: a call that was repeated while the first is in flight, with other runs of the same
    definition.
    """
    await world.job("single", concurrency=1)
    await world.worker.beat("w1")
    first, second = await world.run("single"), await world.run("single")
    other = await world.hand("control")
    await world.control.begin()
    assert await world.control.assign(first, "w1") == [first]
    assert await other.assign(second, "w1") == []
    await (world.control.commit() if commits else world.control.rollback())
    assert await other.assign(second, "w1") == ([] if commits else [second])


@pytest.mark.parametrize("how", HOW)
async def test_a_slot_is_free_when_its_executor_has_stopped(world: World, how: str) -> None:
    """H38: ended by the leader is not stopped."""
    await world.job("single", concurrency=1, max_attempts=1)
    await ended_by_the_leader(world, how, "single")
    run = await world.run("single")
    assert await world.control.assign(run, "w2") == []
    assert await world.control.read_due() == []
    await world.worker.beat("w1")
    assert await world.control.read_due() == [run]
    assert await world.control.assign(run, "w2") == [run]


async def test_a_slot_is_free_when_its_worker_was_silent(world: World) -> None:
    """H38"""
    await world.job("single", concurrency=1, max_attempts=1)
    await ended_by_the_leader(world, "cancel", "single")
    run, seq = await world.run("single"), await world.seq("w1")
    await world.silence("w1", STOP_BOUND + 1)
    assert await world.control.assign(run, "w2") == []
    assert await world.control.assign(run, "w2", silent={"w1": seq}) == [run]


async def test_without_the_quiesce_a_slot_is_given_twice(world: World) -> None:
    """H38: the guard taken out."""
    await world.without_guard("assign", "c.live + c.lingering", "c.live")
    await world.job("single", concurrency=1, max_attempts=1)
    await ended_by_the_leader(world, "cancel", "single")
    run = await world.run("single")
    assert await world.control.assign(run, "w2") == [run]


async def test_what_cannot_go_does_not_stand_in_front(world: World) -> None:
    """Rule 18: full, disabled and removed definitions are passed by."""
    await world.job("full", concurrency=1)
    await world.running(job="full")
    await world.job("off", enabled=False)
    for job in ("full", "off"):
        for _ in range(3):
            await world.run(job, priority=9)
    run = await world.run()
    assert await world.control.read_due(room=1) == [run]


async def test_an_application_in_its_transaction_holds_up_nobody_else(world: World) -> None:
    """P6: it enqueues a bounded job and takes its time; the leader gives out everything else meanwhile."""
    await world.job("bounded", concurrency=2, concurrency_policy="forbid")
    await world.worker.beat("w1")
    bounded, free = await world.run("bounded"), await world.run()
    client = await world.hand("client")
    await client.begin()
    await client.enqueue("bounded")
    await world.control.sql("SET lock_timeout = '1s'")
    assert await world.control.assign([bounded, free], "w1") == [free]
    await client.commit()
    assert await world.control.assign(bounded, "w1") == [bounded]
