"""What a list of claims proves: rule 7."""

import pytest

from tests.integration.sql.world import World


async def test_a_list_without_the_claim_ends_it(world: World) -> None:
    """Rule 7: DROPPED, stopped, due again at once, and its start given back."""
    claim = await world.running()
    assert (await world.worker.beat("w1"))["listed"] == []
    row = await world.row(claim.id)
    assert (row["state"], row["error_code"], row["finished_by"]) == ("FAILED", "DROPPED", "worker")
    assert row["executor_stopped_at"] is not None
    assert row["retry_at"] <= await world.instant()
    [again] = await world.control.next_attempts()
    assert (await world.row(again))["starts"] == 0


async def test_a_list_built_before_the_start_proves_nothing(world: World) -> None:
    """Rule 7: the beat was under way while the start overtook it."""
    claim = await world.assigned()
    built = world.next_beat("w1")
    assert await world.worker.start("w1", claim) == ["RECORDED"]
    await world.worker.beat("w1", beat_no=built)
    assert await world.state(claim.id) == "RUNNING"
    await world.worker.beat("w1", beat_no=built + 1)
    assert await world.state(claim.id) == "FAILED"


async def test_without_the_number_a_run_that_just_started_is_dropped(world: World) -> None:
    """Rule 7: the guard taken out."""
    await world.without_guard("beat", "r.start_beat_no < p_beat_no", "true")
    claim = await world.assigned()
    built = world.next_beat("w1")
    assert await world.worker.start("w1", claim) == ["RECORDED"]
    await world.worker.beat("w1", beat_no=built)
    assert await world.state(claim.id) == "FAILED"


async def test_a_repeated_start_moves_the_number(world: World) -> None:
    """Rule 7: lists built between the two starts say nothing about what the second one answered."""
    claim = await world.assigned()
    assert await world.worker.start("w1", claim, beat_no=1) == ["RECORDED"]
    assert await world.worker.start("w1", claim, beat_no=5) == ["ALREADY"]
    await world.worker.beat("w1", beat_no=5)
    assert await world.state(claim.id) == "RUNNING"
    assert await world.worker.start("w1", claim, beat_no=2) == ["ALREADY"]  # delayed: it moves nothing back
    await world.worker.beat("w1", beat_no=4)
    assert await world.state(claim.id) == "RUNNING"
    await world.worker.beat("w1", beat_no=6)
    assert await world.state(claim.id) == "FAILED"


@pytest.mark.parametrize("past", [False, True])
async def test_a_repeated_start_confirms_as_a_beat_does(world: World, *, past: bool) -> None:
    """Rule 8: it is a contact; at or after the deadline it is none, and nothing is executed."""
    claim = await world.confirming(past=past)
    assert await world.worker.start("w1", claim) == ["REFUSED" if past else "ALREADY"]
    row = await world.row(claim.id)
    assert row["continuation_state"] == ("CONFIRMING" if past else "NONE")
    if not past:
        assert row["continuation_check_deadline_at"] is None
        assert (await world.history(claim.id))[-1]["reason"] == "CONFIRMED"


async def test_a_list_stops_an_ended_attempt(world: World) -> None:
    """Rule 7, rule 10: named it may still execute, not named it does not."""
    claim = await world.lost()
    await world.worker.beat("w1", claim)
    assert (await world.row(claim.id))["executor_stopped_at"] is None
    await world.worker.beat("w1", beat_no=0)  # an old list
    assert (await world.row(claim.id))["executor_stopped_at"] is None
    await world.worker.beat("w1")
    assert (await world.row(claim.id))["executor_stopped_at"] is not None


async def test_a_dropped_run_that_was_to_be_canceled_is_not_run_again(world: World) -> None:
    claim = await world.running()
    await world.control.request_cancel(claim.id)
    await world.worker.beat("w1")
    assert (await world.row(claim.id))["retry_at"] is None


async def test_a_beat_speaks_for_its_own_worker_only(world: World) -> None:
    mine, other = await world.running("w1"), await world.running("w2")
    await world.worker.beat("w1", mine)
    assert await world.state(other.id) == "RUNNING"


async def test_the_reply_lists_what_may_go_on(world: World) -> None:
    """Rule 7: ASSIGNED or RUNNING under that claim; what has ended, or is another's, is not listed."""
    assigned, running = await world.assigned("w1"), await world.running("w1")
    ended, other = await world.running("w1"), await world.running("w2")
    await world.worker.finish("w1", ended)
    reply = await world.worker.beat("w1", assigned, running, ended, other)
    assert set(reply["listed"]) == {assigned.claim_id, running.claim_id}
    assert reply["assigned"]


async def test_the_reply_carries_cancels_and_a_drain_request(world: World) -> None:
    claim = await world.running()
    reply = await world.worker.beat("w1", claim)
    assert (reply["cancels"], reply["drain"]) == ([], False)
    await world.control.request_cancel(claim.id)
    await world.control.sql("SELECT supervisor.request_drain('anna', 'w1')")
    reply = await world.worker.beat("w1", claim)
    assert (reply["listed"], reply["cancels"], reply["drain"]) == ([claim.claim_id], [claim.claim_id], True)


async def test_a_start_is_a_contact(world: World) -> None:
    """Rule 7"""
    claim = await world.assigned()
    seq = await world.seq("w1")
    await world.silence("w1", 100)
    await world.worker.start("w1", claim)
    assert await world.seq("w1") == seq + 1
    age = "SELECT extract(epoch FROM clock_timestamp() - heartbeat_at) FROM supervisor.worker"
    assert await world.admin.value(age) < 5


async def test_a_name_that_is_gone_never_comes_back(world: World) -> None:
    """Rule 20: a delayed beat of a worker that left gives it no work."""
    await world.worker.beat("w1")
    await world.worker.leave("w1")
    reply = await world.worker.beat("w1")
    assert reply["drain"]
    assert await world.control.assign(await world.run(), "w1") == []


async def test_every_beat_of_a_draining_worker_releases(world: World) -> None:
    """Rule 20: no start and no fruitless assignment is counted."""
    waiting, working = await world.assigned("w1"), await world.running("w1")
    reply = await world.worker.beat("w1", waiting, working, draining=True)
    assert reply["listed"] == [working.claim_id]
    row = await world.row(waiting.id)
    assert (row["state"], row["starts"], row["fruitless_assignments"]) == ("ORPHANED", 0, 0)
    await world.worker.beat("w1", working)  # it does not become active again
    assert await world.control.assign(waiting.id, "w1") == []
