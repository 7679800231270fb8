"""Epoch, fence, lease, timeline: who leads, and what a deposed leader can no longer do."""

import asyncpg
import pytest

from supervisor.clock import boottime
from supervisor.config import Timings
from supervisor.election import Election, Tenure
from supervisor.memory import Memory
from supervisor.metrics import Metrics
from supervisor.store import Store
from supervisor.wakeups import Wakeups
from tests.integration.sql.world import LEASE, STOP_BOUND, Hand, World

SHARE = "FROM supervisor.leader_epoch e FOR SHARE"


async def expire_lease(world: World) -> None:
    await world.admin.sql("UPDATE supervisor.leader_lease SET expires_at = clock_timestamp()")


async def refusal(hand: Hand, statement: str, *arguments: object) -> str | None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await hand.sql(statement, *arguments)
    return caught.value.sqlstate


async def term(world: World) -> asyncpg.Record:
    return await world.admin.one("SELECT * FROM supervisor.leader_epoch")


async def server(world: World) -> asyncpg.Record:
    return await world.admin.one("SELECT * FROM supervisor.server_identity()")


# the lease


async def test_nobody_takes_over_while_the_lease_lives(world: World) -> None:
    assert await world.control.acquire("l2") is None
    assert (await term(world))["holder"] == "l1"


async def test_a_new_leader_has_a_greater_epoch(world: World) -> None:
    """R003-21"""
    first = world.epoch
    await expire_lease(world)
    taken = await world.control.acquire("l2")
    assert taken is not None
    assert taken["epoch"] == first + 1
    log = await world.admin.sql("SELECT epoch, holder, what FROM supervisor.tenure_log ORDER BY id")
    assert [tuple(row) for row in log] == [(first, "l1", "ACQUIRED"), (first + 1, "l2", "ACQUIRED")]


async def test_who_takes_over_notes_the_last_renewal_of_one_that_was_lost(world: World) -> None:
    """How long nobody led can be told afterwards; who resigned said so itself."""
    await expire_lease(world)
    lost = await world.admin.one("SELECT renewed_at FROM supervisor.leader_lease")
    assert await world.control.acquire("l2") is not None
    epoch = (await term(world))["epoch"]
    await world.control.sql("SELECT supervisor.resign($1, 'l2', 'test')", epoch)
    assert await world.control.acquire("l3") is not None
    log = await world.admin.sql("SELECT holder, before_renewed_at FROM supervisor.tenure_log ORDER BY id")
    assert [tuple(row) for row in log if row["holder"]][-3:] == [
        ("l2", lost["renewed_at"]),
        ("l2", None),
        ("l3", None),
    ]


async def test_two_candidates_and_one_leader(world: World) -> None:
    """R003-21, H3: the second neither waits nor leads."""
    await expire_lease(world)
    other = await world.hand("control")
    await world.control.begin()
    first = await world.control.acquire("l2")
    assert await other.acquire("l3") is None
    await world.control.commit()
    assert await other.acquire("l3") is None
    assert first is not None
    assert (await term(world))["holder"] == "l2"


async def test_a_candidate_that_fails_leaves_the_place_free(world: World) -> None:
    """H3"""
    await expire_lease(world)
    await world.control.begin()
    assert await world.control.acquire("l2") is not None
    await world.control.rollback()
    taken = await world.control.acquire("l3")
    assert taken is not None
    assert taken["epoch"] == world.epoch + 1


async def test_a_lease_that_was_renewed_meanwhile_is_not_taken(world: World) -> None:
    """H3: the look before the lock is not believed."""
    await world.without_guard(
        "acquire",
        "IF lease.live AND NOT moved THEN\n        RETURN;\n    END IF;\n    -- of several",
        "-- of several",
    )
    assert await world.control.acquire("l2") is None


async def test_renewal(world: World) -> None:
    """H6: by its holder, under its epoch, before it ran out, and never after."""
    assert await world.control.renew("l1", world.epoch) is not None
    assert await world.control.renew("l2", world.epoch) is None
    assert await world.control.renew("l1", world.epoch - 1) is None
    await expire_lease(world)
    assert await world.control.renew("l1", world.epoch) is None


async def test_a_renewal_that_waits_for_the_lease_is_decided_anew(world: World) -> None:
    """H6, R003-20: the lease was alive when the renewal came and is over when its lock is free."""
    other = await world.hand("control")
    await other.begin()
    assert await other.resign("l1", world.epoch)
    late = await world.waiting(world.control, world.control.renew("l1", world.epoch))
    await other.commit()
    assert await late is None


async def test_resigning_makes_room_at_once(world: World) -> None:
    assert not await world.control.resign("l2", world.epoch)
    assert not await world.control.resign("l1", world.epoch - 1)
    assert await world.control.resign("l1", world.epoch)
    assert not await world.control.resign("l1", world.epoch)
    assert await world.control.renew("l1", world.epoch) is None
    taken = await world.control.acquire("l2")
    assert taken is not None
    assert taken["epoch"] == world.epoch + 1


async def test_a_request_to_resign_reaches_its_leader_only(world: World) -> None:
    asked = await world.control.sql("SELECT * FROM supervisor.request_resign('anna')")
    assert [tuple(row) for row in asked] == [(world.epoch, "l1")]
    answer = await world.control.renew("l1", world.epoch)
    assert answer is not None
    assert answer["resign_requested"]
    await world.lead("l2")
    answer = await world.control.renew("l2", world.epoch)
    assert answer is not None
    assert not answer["resign_requested"]
    assert (
        await world.admin.value("SELECT count(*) FROM supervisor.audit WHERE action = 'leader.resign'") == 1
    )
    await world.control.resign("l2", world.epoch)
    assert await refusal(world.control, "SELECT supervisor.request_resign('anna')") == "TN021"


# the fence


async def test_a_deposed_leader_is_refused_and_changes_nothing(world: World) -> None:
    """R003-20, H1: every function of the leader, under the old epoch."""
    run, old = await world.run(), world.epoch
    await world.worker.beat("w1")
    await world.lead("l2")
    calls = [
        "SELECT supervisor.fence($1)",
        f"SELECT supervisor.assign($1, '{{{run}}}', '{{1}}', '{{w1}}', '{{}}', '{{}}', 7)",
        f"SELECT supervisor.orphan($1, '{{{run}}}', '{{1}}', '{{}}', '{{}}', 1.5)",
        "SELECT supervisor.confirm($1, '{}', '{}', 1.5, 7, 0.5)",
        f"SELECT supervisor.expire($1, '{{{run}}}', '{{1}}', '{{NULL}}')",
        f"SELECT supervisor.time_out($1, '{{{run}}}', '{{1}}', 7)",
        f"SELECT supervisor.cancel($1, 'l1', '{{{run}}}', '{{1}}', 7)",
        f"SELECT supervisor.exhaust($1, 'l1', '{{{run}}}', '{{1}}')",
        "SELECT supervisor.next_attempts($1, 10)",
    ]
    for call in calls:
        for epoch in (old, world.epoch + 1, None):
            assert await refusal(world.control, call, epoch) == "TN001", call
        await world.control.sql(call, world.epoch)
    assert await world.state(run) == "ASSIGNED"


async def test_every_function_that_takes_an_epoch_is_fenced(world: World) -> None:
    """R003-20: also one that is added later. renew and resign are the lease's own, and compare the epoch
    themselves.
    """
    rows = await world.admin.sql(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'supervisor'::regnamespace AND prosecdef "
        "AND proargnames[1] = 'p_epoch' AND prosrc NOT LIKE '%PERFORM supervisor.fence(p_epoch);%'"
    )
    assert {row["proname"] for row in rows} == {"fence", "renew", "resign"}


async def test_a_take_over_waits_for_the_call_in_flight(world: World) -> None:
    """H2, N3, R003-20: what the old leader has begun commits before the new epoch, nothing of it after."""
    run = await world.run()
    await world.worker.beat("w1")
    await expire_lease(world)
    await world.control.begin()
    assert await world.control.assign(run, "w1") == [run]
    other = await world.hand("control")
    taking = await world.waiting(other, other.acquire("l2"))
    await world.control.commit()
    taken = await taking
    assert taken is not None
    assert await world.state(run) == "ASSIGNED"
    assert await refusal(world.control, "SELECT supervisor.fence($1)", world.epoch) == "TN001"


async def test_a_call_that_waits_for_a_take_over_is_refused(world: World) -> None:
    """H1, H7, N0: the old leader's call arrives while the new epoch is being written."""
    run, old = await world.run(), world.epoch
    await world.worker.beat("w1")
    await expire_lease(world)
    other = await world.hand("control")
    await other.begin()
    assert await other.acquire("l2") is not None
    late = await world.waiting(world.control, world.control.assign(run, "w1", epoch=old))
    await other.commit()
    with pytest.raises(asyncpg.PostgresError) as caught:
        await late
    assert caught.value.sqlstate == "TN001"
    assert await world.state(run) == "PENDING"


@pytest.mark.parametrize(
    "weaker", ["FROM supervisor.leader_epoch e", "FROM supervisor.leader_epoch e FOR KEY SHARE"]
)
async def test_without_the_share_lock_a_deposed_leader_writes(world: World, weaker: str) -> None:
    """N0, N1: an epoch that is only read, or locked FOR KEY SHARE, is no fence: the guard taken out."""
    await world.without_guard("fence", SHARE, weaker)
    run = await world.run()
    await world.worker.beat("w1")
    await expire_lease(world)
    await world.control.begin()
    assert await world.control.assign(run, "w1") == [run]
    other = await world.hand("control")
    taken = await other.acquire("l2")
    assert taken is not None
    before = await world.instant("(SELECT since FROM supervisor.leader_epoch)")
    await world.control.commit()
    row = await world.row(run)
    assert row["state"] == "ASSIGNED"
    assert row["assigned_epoch"] < taken["epoch"]
    assert await world.instant() > before


async def test_a_lease_that_ran_out_does_not_fence(world: World) -> None:
    """No successor, no conflict: the epoch is the fence, the lease is not."""
    await expire_lease(world)
    await world.control.sql("SELECT supervisor.fence($1)", world.epoch)


# the epoch


async def test_the_epoch_exceeds_whatever_the_candidate_ever_saw(world: World) -> None:
    """Rule 2: commits that were lost do not give a number twice."""
    await expire_lease(world)
    taken = await world.control.acquire("l2", seen=500)
    assert taken is not None
    assert taken["epoch"] == 501


async def test_the_epoch_carries_the_timeline(world: World) -> None:
    """Rule 2, FO0: greatest(epoch, (timeline - 1) << 32, seen) + 1."""
    await world.without_guard("server_identity", "::bit(32)::integer", "::bit(32)::integer + 2")
    taken = await world.control.acquire("l2", seen=500)
    assert taken is not None
    assert taken["timeline"] == 3
    assert taken["epoch"] == (2 << 32) + 1


async def test_a_server_left_behind_is_refused(world: World) -> None:
    """Rule 2: timelines are compared within one system identifier only."""
    here = await server(world)
    await expire_lease(world)
    with pytest.raises(asyncpg.PostgresError) as caught:
        await world.control.acquire("l2", system=here["system_identifier"], timeline=here["timeline"] + 1)
    assert caught.value.sqlstate == "TN003"
    taken = await world.control.acquire(
        "l2", system=here["system_identifier"] + 1, timeline=here["timeline"] + 1
    )
    assert taken is not None


async def test_an_unsafe_server_is_refused(world: World) -> None:
    """H19: with asynchronous commits an epoch could be given out twice."""
    await expire_lease(world)
    await world.control.sql("SET synchronous_commit = off")
    with pytest.raises(asyncpg.PostgresError) as caught:
        await world.control.acquire("l2")
    assert caught.value.sqlstate == "TN002"
    await world.control.sql("SET synchronous_commit = on")
    assert await world.control.acquire("l2") is not None


async def test_a_server_without_fsync_is_refused(world: World) -> None:
    """H19"""
    await expire_lease(world)
    await world.without_guard("acquire", "current_setting('fsync') = 'off'", "'off' = 'off'")
    with pytest.raises(asyncpg.PostgresError) as caught:
        await world.control.acquire("l2")
    assert caught.value.sqlstate == "TN002"


# another timeline


async def promote(world: World, leader: str = "l2", *, system: int | None = None) -> float:
    """The server turns out to be another than the term was taken on, and this leader takes over."""
    await world.move_server(timeline=(await server(world))["timeline"] + (0 if system else -1), system=system)
    taken = await world.control.acquire(leader)
    assert taken is not None
    world.epoch = taken["epoch"]
    return float(taken["quarantine_seconds"])


async def end_quarantine(world: World) -> None:
    await world.unguarded("UPDATE supervisor.leader_epoch SET quarantine_until = clock_timestamp()")


async def elected(world: World, memory: Memory) -> Tenure:
    """A replica that knows what is in `memory` takes over."""
    await expire_lease(world)
    store = Store(world.urls.control)
    try:
        tenure = await Election(store, "l3", Timings(), memory, Wakeups("l3"), Metrics()).attempt()
    finally:
        await store.close()
    assert tenure is not None
    return tenure


async def test_a_newcomer_holds_the_quarantine_by_its_own_clock(world: World) -> None:
    """Rule 22: the new server's clock steps forward, and a replica that saw no failover is elected."""
    await promote(world)
    await end_quarantine(world)
    born, bound = boottime(), Timings().stop_bound
    memory = Memory()
    assert (await elected(world, memory)).quarantined_until >= born + bound
    memory.met_at = born - bound
    assert (await elected(world, memory)).quarantined_until <= boottime(), "it has known it for long enough"


async def test_a_newcomer_waits_for_no_failover_of_long_ago(world: World) -> None:
    await promote(world)
    await world.unguarded("UPDATE supervisor.leader_epoch SET quarantine_until = now() - interval '2 days'")
    assert (await elected(world, Memory())).quarantined_until <= boottime()


async def test_a_newcomer_waits_for_nothing_where_there_was_no_failover(world: World) -> None:
    assert (await elected(world, Memory())).quarantined_until <= boottime()


async def test_a_claim_whose_start_a_failover_lost_is_not_listed(world: World) -> None:
    """Rule 22: its worker executes, the row says ASSIGNED, and after D somebody else will be given it."""
    claim = await world.assigned()
    assert claim.claim_id in (await world.worker.beat("w1", claim))["listed"]
    await world.move_server(timeline=(await server(world))["timeline"] - 1)
    assert claim.claim_id not in (await world.worker.beat("w1", claim))["listed"], "nobody leads yet"
    await promote(world)
    assert claim.claim_id not in (await world.worker.beat("w1", claim))["listed"]
    await end_quarantine(world)
    assert claim.claim_id not in (await world.worker.beat("w1", claim))["listed"]


async def test_a_claim_that_was_started_before_a_failover_is_listed(world: World) -> None:
    """Rule 5: a change of leaders and timelines is none of a healthy worker's business."""
    claim = await world.running()
    await promote(world)
    assert claim.claim_id in (await world.worker.beat("w1", claim))["listed"]


async def test_the_first_leader_of_all_waits_for_nobody(world: World) -> None:
    row = await term(world)
    assert row["quarantine_until"] is None
    assert row["first_epoch"] == row["epoch"] == world.epoch


async def test_on_a_new_timeline_the_old_term_is_over(world: World) -> None:
    """Rule 3, H20, H22: the stored epoch is the caller's, and still the fence refuses; so does the
    renewal.
    """
    await world.move_server(timeline=(await server(world))["timeline"] - 1)
    assert await refusal(world.control, "SELECT supervisor.fence($1)", world.epoch) == "TN001"
    assert await world.control.renew("l1", world.epoch) is None


async def test_without_the_timeline_in_the_fence_the_old_leader_goes_on(world: World) -> None:
    """FO0: the guard taken out."""
    await world.without_guard("fence", "OR term.timeline IS DISTINCT FROM here.timeline")
    await world.move_server(timeline=(await server(world))["timeline"] - 1)
    await world.control.sql("SELECT supervisor.fence($1)", world.epoch)


@pytest.mark.parametrize("system", [None, 42])
async def test_after_a_failover_nothing_is_assigned_for_a_while(world: World, system: int | None) -> None:
    """Rule 22, FO1: the lease of the lost timeline counts for nothing; D passes before the first
    assignment.
    """
    run = await world.run()
    await world.worker.beat("w1")
    assert STOP_BOUND / 2 < await promote(world, system=system) <= STOP_BOUND
    assert await world.control.assign(run, "w1") == []
    await world.lead("l3")
    assert await world.control.assign(run, "w1") == []
    await end_quarantine(world)
    assert await world.control.assign(run, "w1") == [run]


async def test_a_stop_acknowledgement_does_not_shorten_the_quarantine(world: World) -> None:
    """FO1 (b)"""
    claim = await world.running()
    await promote(world)
    assert await world.worker.finish("w1", claim, state="FAILED", error="X") == ["RECORDED"]
    [again] = await world.control.next_attempts()
    assert await world.control.assign(again, "w1") == []


async def test_without_the_quarantine_it_is_assigned_at_once(world: World) -> None:
    """FO1: the guard taken out."""
    await world.without_guard("assign", "e.quarantine_until > clock_timestamp()", "false")
    run = await world.run()
    await world.worker.beat("w1")
    await promote(world)
    assert await world.control.assign(run, "w1") == [run]


async def test_an_assignment_of_the_lost_timeline_cannot_start(world: World) -> None:
    """Rule 5, rule 22, FO1 (a): neither before nor after the new leader is there, and it is orphaned after
    D.
    """
    claim = await world.assigned()
    await world.move_server(timeline=(await server(world))["timeline"] - 1)
    assert await world.worker.start("w1", claim) == ["REFUSED"]
    await promote(world)
    assert await world.worker.start("w1", claim) == ["REFUSED"]
    assert await world.control.orphan(claim.id) == []
    await end_quarantine(world)
    assert await world.worker.start("w1", claim) == ["REFUSED"]
    assert await world.control.orphan(claim.id) == [claim.id]
    again = await world.assigned(run=claim.id)
    assert again.attempt == 2
    assert await world.worker.start("w1", again) == ["RECORDED"]


async def test_without_the_first_epoch_a_lost_assignment_starts(world: World) -> None:
    """FO1 (a): the guard taken out."""
    await world.without_guard("start", "AND r.assigned_epoch >= term.first_epoch")
    claim = await world.assigned()
    await promote(world)
    assert await world.worker.start("w1", claim) == ["RECORDED"]


async def test_an_assignment_of_an_earlier_leader_starts(world: World) -> None:
    """Rule 5, R003-18, C-51: same timeline, another leader: the start carries the epoch of now."""
    claim = await world.assigned()
    await world.lead("l2")
    assert await world.worker.start("w1", claim) == ["RECORDED"]
    row = await world.row(claim.id)
    assert (row["assigned_epoch"], row["leader_epoch"]) == (world.epoch - 1, world.epoch)


async def test_a_beat_tells_of_the_server_and_of_its_leader(world: World) -> None:
    here = await server(world)
    reply = await world.worker.beat("w1", epoch_seen=world.epoch)
    assert (reply["epoch"], reply["leader_live"]) == (world.epoch, True)
    assert (reply["system_identifier"], reply["timeline"]) == tuple(here)
    assert not (await world.worker.beat("w1", epoch_seen=world.epoch + 1))["leader_live"]
    await expire_lease(world)
    assert not (await world.worker.beat("w1"))["leader_live"]
    await world.lead("l2")
    await world.move_server(timeline=here["timeline"] - 1)
    assert not (await world.worker.beat("w1"))["leader_live"]


async def test_the_lease_lasts_as_long_as_it_was_asked_for(world: World) -> None:
    left = "SELECT extract(epoch FROM expires_at - clock_timestamp()) FROM supervisor.leader_lease"
    assert LEASE / 2 < await world.admin.value(left) <= LEASE


async def test_a_server_that_lost_commits_is_quarantined(world: World) -> None:
    """An epoch was seen on this very server that it does not know: a snapshot was rolled back."""
    here = await world.admin.sql("SELECT * FROM supervisor.server_identity()")
    await world.worker.beat("w1")
    run = await world.run()
    row = await world.control.acquire(
        "l2", seen=world.epoch + 5, system=here[0]["system_identifier"], timeline=here[0]["timeline"]
    )
    assert row is not None
    assert row["epoch"] == world.epoch + 6
    assert row["quarantine_seconds"] > 0
    world.epoch = row["epoch"]
    assert await world.control.assign(run, "w1") == []


async def test_a_clock_set_back_leaves_no_dead_leader_in_office(world: World) -> None:
    await world.admin.sql(
        "UPDATE supervisor.leader_lease SET expires_at = clock_timestamp() + interval '1 hour'"
    )
    row = await world.control.acquire("l2")
    assert row is not None
    assert row["epoch"] == world.epoch + 1
