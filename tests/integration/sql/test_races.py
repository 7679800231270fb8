"""Two hands on one run: one inside an open transaction, the other seen to wait, then the answer.

Where a test ends with `without_guard`, the guard is taken out of the function and the bad thing happens.
"""

import asyncpg
import pytest

from tests.integration.sql.world import CONFIRM_AFTER, HEARTBEAT, STOP_BOUND, Held, World


async def unstarted(world: World) -> Held:
    """Assigned long ago to a worker that has been silent since."""
    claim = await world.assigned("w1")
    await world.shift_run(claim.id, "assigned_at", 100)
    await world.silence("w1", 100)
    return claim


# start and orphan


async def test_a_start_that_waits_for_the_orphaning_is_refused(world: World) -> None:
    """H8, R003-29, R003-30"""
    claim = await unstarted(world)
    await world.control.begin()
    assert await world.control.orphan(claim.id, silent={"w1": await world.seq("w1")}) == [claim.id]
    start = await world.waiting(world.worker, world.worker.start("w1", claim))
    await world.control.commit()
    assert await start == ["REFUSED"]
    assert await world.state(claim.id) == "ORPHANED"


async def test_a_start_goes_on_when_the_orphaning_is_undone(world: World) -> None:
    """H8"""
    claim = await unstarted(world)
    await world.control.begin()
    await world.control.orphan(claim.id, silent={"w1": await world.seq("w1")})
    start = await world.waiting(world.worker, world.worker.start("w1", claim))
    await world.control.rollback()
    assert await start == ["RECORDED"]


async def test_an_orphaning_that_waits_for_the_start_does_nothing(world: World) -> None:
    """H8"""
    claim = await unstarted(world)
    watched = {"w1": await world.seq("w1")}
    await world.worker.begin()
    assert await world.worker.start("w1", claim) == ["RECORDED"]
    orphan = await world.waiting(world.control, world.control.orphan(claim.id, silent=watched))
    await world.worker.commit()
    assert await orphan == []
    assert await world.state(claim.id) == "RUNNING"


async def test_orphaning_needs_both_conditions(world: World) -> None:
    """R003-39, R003-40: old and silent by both keys, or old and gone; a slow worker that lives keeps its
    run.
    """
    claim = await world.assigned("w1")
    seq = await world.seq("w1")
    await world.silence("w1", 100)
    assert await world.control.orphan(claim.id, silent={"w1": seq}) == []  # not old
    await world.shift_run(claim.id, "assigned_at", 100)
    assert await world.control.orphan(claim.id) == []  # the leader did not watch it
    assert await world.control.orphan(claim.id, silent={"w1": seq - 1}) == []  # it beat since
    await world.silence("w1", 0)
    assert (
        await world.control.orphan(claim.id, silent={"w1": seq}) == []
    )  # not silent by the database's clock
    await world.silence("w1", 100)
    assert await world.control.orphan(claim.id, silent={"w1": seq}) == [claim.id]


async def test_the_run_of_a_worker_that_is_gone_is_orphaned_when_old(world: World) -> None:
    """R003-39"""
    claim = await world.assigned("w1")
    await world.admin.sql("UPDATE supervisor.worker SET state = 'gone'")
    assert await world.control.orphan(claim.id) == []
    await world.shift_run(claim.id, "assigned_at", 100)
    assert await world.control.orphan(claim.id) == [claim.id]


async def test_a_start_in_flight_loses_to_the_reassignment(world: World) -> None:
    """H9, R003-14, R003-23: a new claim, a new worker, attempt + 1; the old claim starts nothing."""
    claim = await unstarted(world)
    await world.control.orphan(claim.id, silent={"w1": await world.seq("w1")})
    await world.worker.beat("w2")
    await world.control.begin()
    assert await world.control.assign(claim.id, "w2") == [claim.id]
    start = await world.waiting(world.worker, world.worker.start("w1", claim))
    await world.control.commit()
    assert await start == ["REFUSED"]
    again = await world.held(claim.id)
    assert again.attempt == claim.attempt + 1
    assert again.claim_id != claim.claim_id
    assert await world.worker.start("w2", again) == ["RECORDED"]


@pytest.mark.parametrize("what", ["version", "claim", "worker"])
async def test_start_matches_version_claim_and_assignee(world: World, what: str) -> None:
    """R003-03, R003-22, R003-29"""
    claim, other = await world.assigned("w1"), await world.assigned("w1")
    await world.worker.beat("w2")
    wrong = {
        "version": Held(claim.id, claim.version + 1, claim.claim_id),
        "claim": Held(claim.id, claim.version, other.claim_id),
        "worker": claim,
    }[what]
    assert await world.worker.start("w2" if what == "worker" else "w1", wrong) == ["REFUSED"]
    assert await world.state(claim.id) == "ASSIGNED"


async def test_start_is_refused_after_leave_and_after_a_cancel_request(world: World) -> None:
    cancelled, left = await world.assigned("w1"), await world.assigned("w2")
    await world.control.request_cancel(cancelled.id)
    assert await world.worker.start("w1", cancelled) == ["REFUSED"]
    await world.admin.sql("UPDATE supervisor.worker SET state = 'gone' WHERE worker_id = 'w2'")
    assert await world.worker.start("w2", left) == ["REFUSED"]
    assert await world.worker.start("unknown", left) == ["REFUSED"]


# assign and assign


@pytest.mark.parametrize("commits", [True, False])
async def test_two_assignments_of_one_run(world: World, commits: bool) -> None:
    """R003-05, R003-27: the same expected version, and exactly one of them."""
    run = await world.run()
    await world.worker.beat("w1")
    await world.worker.beat("w2")
    other = await world.hand("control")
    await world.control.begin()
    assert await world.control.assign(run, "w1") == [run]
    second = await world.waiting(other, other.assign(run, "w2", versions=[1]))
    await (world.control.commit() if commits else world.control.rollback())
    assert await second == ([] if commits else [run])
    assert (await world.row(run))["assigned_worker_id"] == ("w1" if commits else "w2")


async def test_an_assignment_compares_the_version(world: World) -> None:
    """R003-03, R003-27, H25: released and orphaned again, the row looks the same and is another."""
    claim = await world.assigned("w1")
    await world.worker.release("w1", claim)
    old = await world.versions([claim.id])
    await world.worker.release("w1", await world.assigned("w1", run=claim.id))
    assert await world.control.assign(claim.id, "w1", versions=old) == []
    assert await world.control.assign(claim.id, "w1") == [claim.id]


# draining and leaving


@pytest.mark.parametrize("last_call", ["leave", "beat"])
async def test_an_assignment_that_waits_for_a_leaving_worker_is_not_made(
    world: World, last_call: str
) -> None:
    """Rule 20"""
    run = await world.run()
    await world.worker.beat("w1")
    await world.worker.begin()
    await (world.worker.leave("w1") if last_call == "leave" else world.worker.beat("w1", draining=True))
    assign = await world.waiting(world.control, world.control.assign(run, "w1"))
    await world.worker.commit()
    assert await assign == []
    assert await world.state(run) == "PENDING"


@pytest.mark.parametrize("last_call", ["leave", "beat"])
async def test_a_leaving_worker_gives_back_what_was_just_assigned(world: World, last_call: str) -> None:
    """Rule 20: the last call waits for the assignment in flight and releases it; no start is counted."""
    run = await world.run()
    await world.worker.beat("w1")
    await world.control.begin()
    assert await world.control.assign(run, "w1") == [run]
    call = world.worker.leave("w1") if last_call == "leave" else world.worker.beat("w1", draining=True)
    last = await world.waiting(world.worker, call)
    await world.control.commit()
    await last
    row = await world.row(run)
    assert (row["state"], row["starts"], row["fruitless_assignments"]) == ("ORPHANED", 0, 0)


async def test_without_the_state_check_a_gone_worker_gets_runs(world: World) -> None:
    """Rule 20: the guard taken out."""
    await world.without_guard("assign", "AND w.state = 'active'")
    run = await world.run()
    await world.worker.beat("w1")
    await world.worker.leave("w1")
    assert await world.control.assign(run, "w1") == [run]


# finish and expire


async def test_a_finish_that_waits_for_the_expiry_is_superseded(world: World) -> None:
    """H10, P4: refused, kept as evidence, and it says that the executor has stopped."""
    claim = await world.confirming(past=True)
    await world.control.begin()
    assert await world.control.expire(claim.id, seqs=[await world.seq("w1")]) == {claim.id: "TIMED_OUT"}
    finish = await world.waiting(world.worker, world.worker.finish("w1", claim))
    await world.control.commit()
    assert await finish == ["SUPERSEDED"]
    row = await world.row(claim.id)
    assert (row["state"], row["error_code"], row["finished_by"]) == (
        "TIMED_OUT",
        "CONTINUATION_EXPIRED",
        "leader",
    )
    assert row["executor_stopped_at"] is not None
    assert [late["state"] for late in await world.late(claim)] == ["SUCCEEDED"]


async def test_an_expiry_that_waits_for_the_finish_does_nothing(world: World) -> None:
    """H10: work that was done is accepted after the deadline, while the row is RUNNING under its claim."""
    claim = await world.confirming(past=True)
    seq = await world.seq("w1")
    await world.worker.begin()
    assert await world.worker.finish("w1", claim) == ["RECORDED"]
    expire = await world.waiting(world.control, world.control.expire(claim.id, seqs=[seq]))
    await world.worker.commit()
    assert await expire == {}
    assert await world.state(claim.id) == "SUCCEEDED"


async def test_the_worker_itself_may_record_the_time_out(world: World) -> None:
    """R003-43, R003-45, rule 8: TIMED_OUT by the worker after the deadline, and the next attempt is owed at
    once.
    """
    claim = await world.confirming(past=True)
    finish = await world.worker.finish("w1", claim, state="TIMED_OUT", error="CONTINUATION_LOST", delay=100)
    assert finish == ["RECORDED"]
    row = await world.row(claim.id)
    assert (row["state"], row["finished_by"]) == ("TIMED_OUT", "worker")
    assert row["retry_at"] <= await world.instant()


async def test_expiry_ends_as_canceled_what_was_asked_to_be_canceled(world: World) -> None:
    """Rule 9"""
    claim = await world.confirming(past=True)
    await world.control.request_cancel(claim.id)
    assert await world.control.expire(claim.id, seqs=[await world.seq("w1")]) == {claim.id: "CANCELED"}
    assert (await world.row(claim.id))["retry_at"] is None


async def test_expiry_needs_the_deadline_and_the_watch(world: World) -> None:
    """Rule 9, J1, R003-42: neither the database's clock alone nor the leader's watch alone ends an
    attempt.
    """
    claim = await world.confirming()
    seq = await world.seq("w1")
    assert await world.control.expire(claim.id, seqs=[seq]) == {}  # before the deadline
    assert await world.control.expire(claim.id, seqs=[None]) == {}
    await world.shift_run(claim.id, "continuation_check_deadline_at", 100)
    assert await world.control.expire(claim.id, seqs=[seq - 1]) == {}  # it beat since the watch began
    assert await world.control.expire(claim.id, seqs=[seq]) == {claim.id: "TIMED_OUT"}


# beat, confirm and expire


async def test_an_expiry_that_waits_for_a_beat_does_nothing(world: World) -> None:
    """H11, T0: the beat came too late to be listed, and still the leader has not watched silence."""
    claim = await world.confirming(past=True)
    seq = await world.seq("w1")
    await world.worker.begin()
    assert (await world.worker.beat("w1", claim))["listed"] == []
    expire = await world.waiting(world.control, world.control.expire(claim.id, seqs=[seq]))
    await world.worker.commit()
    assert await expire == {}


async def test_without_the_beat_seq_an_attempt_that_is_heard_expires(world: World) -> None:
    """T0: the guard taken out."""
    await world.without_guard("expire", "OR w.beat_seq = m.beat_seq", "OR true")
    claim = await world.confirming(past=True)
    seq = await world.seq("w1")
    await world.worker.beat("w1", claim)
    assert await world.control.expire(claim.id, seqs=[seq]) == {claim.id: "TIMED_OUT"}


async def test_a_beat_that_waits_for_the_expiry_lists_nothing(world: World) -> None:
    """H11"""
    claim = await world.confirming(past=True)
    await world.control.begin()
    await world.control.expire(claim.id, seqs=[await world.seq("w1")])
    beat = await world.waiting(world.worker, world.worker.beat("w1", claim))
    await world.control.commit()
    assert (await beat)["listed"] == []
    assert (await world.row(claim.id))[
        "executor_stopped_at"
    ] is None  # it was named: perhaps it still executes


async def test_a_beat_in_time_clears_confirming_before_the_expiry(world: World) -> None:
    """R003-17, R003-44, T0: the same attempt goes on; the leader's decision on the old version is worth
    nothing.
    """
    claim = await world.confirming()
    assert (await world.worker.beat("w1", claim))["listed"] == [claim.claim_id]
    row = await world.row(claim.id)
    assert (row["state"], row["continuation_state"], row["attempt"]) == ("RUNNING", "NONE", 1)
    assert await world.control.expire(claim.id, seqs=[None], versions=[claim.version]) == {}
    assert await world.worker.finish("w1", claim) == ["RECORDED"]


async def twice_confirming(world: World) -> tuple[Held, int]:
    """Confirmed again after it was cleared: the row looks the same, its version does not (ABA)."""
    claim = await world.confirming()
    await world.worker.beat("w1", claim)
    await world.silence("w1", CONFIRM_AFTER + 1)
    assert await world.control.confirm({"w1": await world.seq("w1")})
    await world.shift_run(claim.id, "continuation_check_deadline_at", STOP_BOUND + 1)
    return claim, claim.version


async def test_a_confirming_of_another_version_is_another(world: World) -> None:
    """H25, rule 9, R003-03: what the leader watched was the first one."""
    claim, old = await twice_confirming(world)
    assert await world.control.expire(claim.id, seqs=[None], versions=[old]) == {}
    assert await world.control.expire(claim.id, seqs=[None]) == {claim.id: "TIMED_OUT"}


async def test_without_the_version_the_wrong_confirming_expires(world: World) -> None:
    """H25: the guard taken out."""
    await world.without_guard("expire", "AND r.version = m.version")
    claim, old = await twice_confirming(world)
    assert await world.control.expire(claim.id, seqs=[None], versions=[old]) == {claim.id: "TIMED_OUT"}


async def test_confirm_needs_silence_by_both_keys(world: World) -> None:
    """Rule 8, R003-41: C by the database's clock, and the beat_seq that this leader watched."""
    claim = await world.running()
    seq = await world.seq("w1")
    assert await world.control.confirm({"w1": seq}) == []
    await world.silence("w1", CONFIRM_AFTER + 1)
    assert await world.control.confirm({"w1": seq - 1}) == []
    assert [row["id"] for row in await world.control.confirm({"w1": seq})] == [claim.id]
    assert await world.control.confirm({"w1": seq}) == []  # once


async def test_a_confirm_that_waits_for_a_beat_does_nothing(world: World) -> None:
    """H11"""
    claim = await world.running()
    await world.silence("w1", CONFIRM_AFTER + 1)
    seq = await world.seq("w1")
    await world.worker.begin()
    await world.worker.beat("w1", claim)
    confirm = await world.waiting(world.control, world.control.confirm({"w1": seq}))
    await world.worker.commit()
    assert await confirm == []


async def test_the_deadline_is_d_after_the_last_contact(world: World) -> None:
    """Rule 8, R003-43"""
    claim = await world.confirming()
    contact = await world.admin.value("SELECT heartbeat_at FROM supervisor.worker")
    deadline = (await world.row(claim.id))["continuation_check_deadline_at"]
    assert (deadline - contact).total_seconds() == STOP_BOUND


async def test_the_deadline_is_two_beats_after_the_clock_of_the_call(world: World) -> None:
    """Rule 8: not the transaction's clock, which falls behind while a call waits."""
    await world.running()
    await world.silence("w1", 60)
    await world.control.begin()
    await world.control.sql("SELECT pg_sleep(0.3)")
    before = await world.instant()
    [row] = await world.control.confirm({"w1": await world.seq("w1")})
    await world.control.commit()
    assert (row["deadline_at"] - before).total_seconds() >= 2 * HEARTBEAT


async def test_the_larger_stop_bound_counts(world: World) -> None:
    """A worker with a longer D than the leader's is given its own."""
    await world.running()
    await world.admin.sql("UPDATE supervisor.worker SET stop_bound_seconds = 600")
    await world.silence("w1", CONFIRM_AFTER + 1)
    [row] = await world.control.confirm({"w1": await world.seq("w1")})
    assert (row["deadline_at"] - await world.instant()).total_seconds() > STOP_BOUND


async def test_while_confirming_nothing_is_reassigned(world: World) -> None:
    """R003-42"""
    claim = await world.confirming()
    await world.worker.beat("w2")
    silent = {"w1": await world.seq("w1")}
    assert await world.control.orphan(claim.id, silent=silent) == []
    assert await world.control.assign(claim.id, "w2", silent=silent) == []
    assert await world.control.time_out(claim.id) == []
    assert await world.control.next_attempts() == []
    assert await world.control.read_due(silent=silent) == []


async def test_past_the_deadline_a_beat_neither_clears_nor_lists(world: World) -> None:
    """Rule 8, R003-43"""
    claim = await world.confirming(past=True)
    assert (await world.worker.beat("w1", claim))["listed"] == []
    assert (await world.row(claim.id))["continuation_state"] == "CONFIRMING"


async def test_without_the_deadline_in_the_reply_the_worker_would_go_on(world: World) -> None:
    """Rule 8: the guard taken out of the reply."""
    await world.without_guard(
        "beat", "AND coalesce(r.continuation_check_deadline_at > clock_timestamp(), true)"
    )
    claim = await world.confirming(past=True)
    assert (await world.worker.beat("w1", claim))["listed"] == [claim.claim_id]


# no leader


async def test_only_a_live_leader_clears_no_leader(world: World) -> None:
    """Rule 8, R003-43: a live lease whose epoch is not below what the worker knows."""
    claim = await world.running()
    assert await world.worker.confirm_self("w1", claim) == 1
    assert await world.worker.confirm_self("w1", claim) == 0
    row = await world.row(claim.id)
    assert row["continuation_reason"] == "NO_LEADER"
    assert row["continuation_check_deadline_at"] > await world.instant()
    await world.admin.sql("UPDATE supervisor.leader_lease SET expires_at = clock_timestamp()")
    assert (await world.worker.beat("w1", claim, epoch_seen=world.epoch))["listed"] == [claim.claim_id]
    assert (await world.row(claim.id))["continuation_state"] == "CONFIRMING"
    await world.lead("l2")
    await world.worker.beat("w1", claim, epoch_seen=world.epoch + 1)
    assert (await world.row(claim.id))["continuation_state"] == "CONFIRMING"
    await world.worker.beat("w1", claim, epoch_seen=world.epoch)
    assert (await world.row(claim.id))["continuation_state"] == "NONE"


async def test_a_silent_confirming_is_cleared_without_a_leader(world: World) -> None:
    """Rule 8: contact is what was asked for."""
    claim = await world.confirming()
    await world.admin.sql("UPDATE supervisor.leader_lease SET expires_at = clock_timestamp()")
    await world.worker.beat("w1", claim)
    assert (await world.row(claim.id))["continuation_state"] == "NONE"


async def test_no_leader_past_its_deadline_stays(world: World) -> None:
    claim = await world.running()
    await world.worker.confirm_self("w1", claim)
    await world.shift_run(claim.id, "continuation_check_deadline_at", STOP_BOUND + 1)
    assert (await world.worker.beat("w1", claim))["listed"] == []
    assert await world.worker.finish("w1", claim, state="TIMED_OUT", error="CONTINUATION_LOST") == [
        "RECORDED"
    ]


# zombies and leader changes


async def test_a_zombie_after_its_run_went_on_elsewhere(world: World) -> None:
    """H12, R003-46, rule 13: SUPERSEDED each time, one late finish, and its stop is known."""
    claim = await world.lost("w1")
    [again] = await world.control.next_attempts()
    await world.worker.beat("w2")
    assert await world.control.assign(again, "w2", silent={"w1": await world.seq("w1")}) == [again]
    assert await world.worker.finish("w1", claim) == ["SUPERSEDED"]
    assert await world.worker.finish("w1", claim) == ["SUPERSEDED"]
    assert len(await world.late(claim)) == 1
    assert (await world.row(claim.id))["executor_stopped_at"] is not None
    assert await world.state(again) == "ASSIGNED"


async def test_a_zombie_after_a_cancel(world: World) -> None:
    """H12"""
    claim = await world.running()
    await world.control.request_cancel(claim.id)
    await world.shift_run(claim.id, "cancel_requested_at", STOP_BOUND + 1)
    assert await world.control.cancel(claim.id) == [claim.id]
    assert await world.worker.finish("w1", claim) == ["SUPERSEDED"]
    row = await world.row(claim.id)
    assert row["state"] == "CANCELED"
    assert row["executor_stopped_at"] is not None
    assert len(await world.late(claim)) == 1


async def stale_claim(world: World) -> tuple[Held, Held]:
    """One run, given to w1 twice: the claim of the first assignment, and the one it runs under."""
    first = await world.assigned("w1")
    await world.worker.release("w1", first)
    second = await world.running("w1", run=first.id)
    return Held(first.id, first.version, first.claim_id, second.epoch), second


async def test_a_finish_matches_the_claim(world: World) -> None:
    """H12, R003-19, C-60"""
    stale, current = await stale_claim(world)
    assert await world.worker.finish("w1", stale, state="FAILED") == ["SUPERSEDED"]
    assert (await world.row(current.id))["executor_stopped_at"] is None
    assert await world.worker.finish("w1", current) == ["RECORDED"]


async def test_without_the_claim_an_old_one_ends_the_run(world: World) -> None:
    """H12: the guard taken out."""
    await world.without_guard(
        "finish", "WHERE r.state = 'RUNNING' AND r.claim_id = m.claim_id", "WHERE r.state = 'RUNNING'"
    )
    stale, _ = await stale_claim(world)
    assert await world.worker.finish("w1", stale, state="FAILED") == ["RECORDED"]


async def test_a_change_of_leaders_is_none_of_the_workers_business(world: World) -> None:
    """H13, F0, R003-19: the token is compared with the row, and the row is never stamped again."""
    claim = await world.running()
    await world.lead("l2")
    assert (await world.worker.beat("w1", claim, epoch_seen=claim.epoch))["listed"] == [claim.claim_id]
    assert await world.worker.finish("w1", claim, epoch=world.epoch) == ["SUPERSEDED"]
    assert (await world.row(claim.id))["leader_epoch"] == claim.epoch < world.epoch
    assert await world.worker.finish("w1", claim) == ["RECORDED"]


async def test_compared_with_the_current_leader_a_healthy_finish_is_refused(world: World) -> None:
    """F1: the guard replaced by the tempting one."""
    await world.without_guard(
        "finish", "r.leader_epoch = m.epoch", "m.epoch = (SELECT e.epoch FROM supervisor.leader_epoch e)"
    )
    claim = await world.running()
    await world.lead("l2")
    assert await world.worker.finish("w1", claim) == ["SUPERSEDED"]


# repeated calls


async def test_repeated_calls_change_nothing(world: World) -> None:
    """H24, rule 12: the same call again after a lost answer."""
    claim = await world.assigned()
    assert await world.control.assign(claim.id, "w1", versions=[1]) == []
    assert await world.worker.start("w1", claim) == ["RECORDED"]
    assert await world.worker.start("w1", claim) == ["ALREADY"]
    claim = await world.held(claim.id)
    assert await world.worker.finish("w1", claim, state="FAILED", error="X") == ["RECORDED"]
    before = await world.row(claim.id)
    assert await world.worker.finish("w1", claim, state="FAILED", error="X") == ["ALREADY"]
    assert await world.late(claim) == []
    assert await world.row(claim.id) == before
    assert await world.worker.start("w1", claim) == ["REFUSED"]
    given_back = await world.assigned()
    assert await world.worker.release("w1", given_back) == 1
    assert await world.worker.release("w1", given_back) == 0


async def test_a_finish_says_another_thing_than_before(world: World) -> None:
    """P2: the first outcome stands, the second is evidence."""
    claim = await world.running()
    await world.worker.finish("w1", claim, state="FAILED", error="X")
    assert await world.worker.finish("w1", claim, state="SUCCEEDED") == ["SUPERSEDED"]
    assert await world.state(claim.id) == "FAILED"
    assert len(await world.late(claim)) == 1


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "DONE", None])
async def test_an_attempt_ends_in_a_terminal_state(world: World, state: str | None) -> None:
    claim = await world.running()
    with pytest.raises(asyncpg.PostgresError) as caught:
        await world.worker.finish("w1", claim, state=state)  # type: ignore[arg-type]
    assert caught.value.sqlstate == "TN022"
    assert await world.late(claim) == []
