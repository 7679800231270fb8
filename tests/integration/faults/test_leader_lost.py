"""The leader is killed, drained, frozen, asked to go, or dies together with all the others."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.clock import boottime
from supervisor.embedded import Urls
from tests.support.effects import is_alive
from tests.support.replicas import REASSIGN_AFTER, TAKE_OVER, C, D, Fleet, H, K, L, Member, R, S, replicas

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
Record = Callable[[str, object], None]


async def everything_was_done_once(fleet: Fleet, runs: list[int]) -> None:
    assert await fleet.states(runs) == {"SUCCEEDED": len(runs)}, await fleet.report()
    done = [one.run_id for one in fleet.effects.executions().values() if one.ended]
    roots = {row["id"]: row["root_id"] for run in runs for row in await fleet.root(run)}
    assert sorted(roots[run] for run in done) == sorted(runs), "done not exactly once"


async def test_a_killed_leader_is_replaced_and_nothing_is_lost_or_done_twice(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """C01: a greater epoch within L + 4 s; what the others execute goes on as attempt 1."""
    async with replicas(database, tmp_path) as fleet:
        leader, epoch = await fleet.leader(), await fleet.epoch()
        await fleet.define("work", fleet.effects.command(3))
        runs = await fleet.trigger("work", 12)
        await fleet.until(lambda: fleet.running(runs), within=8, what="all running")
        lost = await fleet.on(leader, runs)
        assert len(lost) == 4
        began = time.monotonic()
        await leader.kill()
        later = await fleet.trigger("work", 6)
        assert await fleet.led_after(epoch, TAKE_OVER) == epoch + 1
        record_property("take-over seconds", round(time.monotonic() - began, 2))

        everything = [*runs, *later]
        await fleet.until(
            lambda: fleet.succeeded(everything), within=L + 4 + D + C + 10 + 3, what="all runs to succeed"
        )
        record_property("all done after seconds", round(time.monotonic() - began, 2))
        await everything_was_done_once(fleet, everything)
        attempts = {row["root_id"]: row["attempt"] for row in await fleet.last(everything)}
        assert {run for run, attempt in attempts.items() if attempt > 1} == set(lost)
        assert [row["epoch"] for row in await fleet.epochs()] == [epoch, epoch + 1]


async def test_a_drained_leader_is_replaced_at_once_and_its_work_ends_or_moves(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """C02: a new epoch within 3 s; what fits the grace ends as attempt 1, the rest is done elsewhere."""
    async with replicas(database, tmp_path, TENURE_DRAIN_SECONDS="3") as fleet:
        leader, epoch = await fleet.leader(), await fleet.epoch()
        await fleet.define("brief", fleet.effects.command(2.5))
        await fleet.define("lengthy", fleet.effects.command(8), max_attempts=1)
        brief = await fleet.trigger("brief", 6)
        lengthy = await fleet.trigger("lengthy", 6)
        await fleet.until(lambda: fleet.running([*brief, *lengthy]), within=8, what="all running")
        ours, moved = await fleet.on(leader, brief), await fleet.on(leader, lengthy)
        assert ours, "the leader has no brief run"
        assert moved, "the leader has no lengthy run"
        began = time.monotonic()
        leader.term()
        await fleet.led_after(epoch, 3)
        record_property("take-over seconds", round(time.monotonic() - began, 2))
        assert await leader.replica.wait(timeout=3 + K + 5) == 0
        record_property("drained after seconds", round(time.monotonic() - began, 2))
        assert time.monotonic() - began > 2.9, "the grace was not given"
        gone = "SELECT state FROM supervisor.worker WHERE worker_id = $1"
        assert await fleet.value(gone, leader.worker_id) == "gone"

        for run in ours:
            assert [(row["state"], row["attempt"]) for row in await fleet.root(run)] == [("SUCCEEDED", 1)]
        await fleet.until(lambda: fleet.succeeded([*brief, *lengthy]), within=15, what="all runs to succeed")
        for run in moved:
            first, second = await fleet.root(run)
            assert (first["state"], first["error_code"], first["starts"]) == ("FAILED", "DRAINED", 1)
            assert (second["state"], second["attempt"], second["starts"]) == ("SUCCEEDED", 2, 1)
            assert second["assigned_worker_id"] != leader.worker_id
        await everything_was_done_once(fleet, [*brief, *lengthy])


async def test_what_a_drained_leader_had_not_started_costs_no_start(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """C02: ASSIGNED runs of a draining replica are released, reassigned at once, and no start is counted."""
    async with replicas(database, tmp_path, count=0) as fleet:
        (leader,) = await fleet.start(variant="never-starts")
        await fleet.leader()
        epoch = await fleet.epoch()
        await fleet.start(2)
        await fleet.define("work", fleet.effects.command(0.2), max_attempts=1)
        runs = await fleet.trigger("work", 9)

        async def waiting() -> list[int]:
            return await fleet.on(leader, runs, "ASSIGNED")

        held = await fleet.until(waiting, within=5, what="assigned to the leader")
        began = time.monotonic()
        leader.term()
        await fleet.led_after(epoch, 3)
        await fleet.until(lambda: fleet.succeeded(runs), within=5, what="all runs to succeed")
        record_property("released and done after seconds", round(time.monotonic() - began, 2))
        for run in held:
            (row,) = await fleet.root(run)
            assert (row["starts"], row["attempt"], row["fruitless_assignments"]) == (1, 2, 0)
            moves = [(step["to_state"], step["reason"]) for step in await fleet.history(run)]
            assert ("ORPHANED", "RELEASED") in moves
        await everything_was_done_once(fleet, runs)


async def frozen_until_replaced(fleet: Fleet, leader: Member, epoch: int) -> float:
    """Freeze the leader for 2L; when it goes on again, somebody else has led for long."""
    leader.stop()
    began = boottime()
    assert await fleet.led_after(epoch, TAKE_OVER) == epoch + 1
    replaced = boottime() - began

    async def over() -> bool:
        return boottime() - began >= 2 * L

    await fleet.until(over, within=2 * L + 1, what="2 L to pass")
    return replaced


async def test_a_leader_that_was_frozen_without_claims_writes_nothing_and_follows(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """C03 (a): after SIGCONT the trust is over: a follower within 1 s, no move, nothing refused."""
    async with replicas(database, tmp_path, count=0) as fleet:
        (leader,) = await fleet.start(variant="leads-only")
        await fleet.leader()
        epoch = await fleet.epoch()
        await fleet.start(2)
        await fleet.define("work", fleet.effects.command(1))
        before = await fleet.trigger("work", 4)
        await fleet.until(lambda: fleet.running(before), within=8, what="all running")
        record_property("take-over seconds", round(await frozen_until_replaced(fleet, leader, epoch), 2))
        moves = await leader_rows(fleet, epoch)
        runs = await fleet.trigger("work", 40)
        leader.cont()
        began = time.monotonic()

        async def follows() -> bool:
            return await leader.metric("tenure_leader") == 0

        await fleet.until(follows, within=1, what="the old leader to follow")
        record_property("follower after seconds", round(time.monotonic() - began, 2))
        await fleet.until(lambda: fleet.succeeded([*before, *runs]), within=15, what="all runs to succeed")
        assert await leader_rows(fleet, epoch) == moves, "a deposed leader moved a run"
        over = [line for line in leader.said() if line.get("event") == "tenure over"]
        assert [line["epoch"] for line in over] == [epoch]
        assert over[0]["reason"] in ("TRUST_OVER", "NO_PROGRESS"), "it had to be told that it was over"
        assert await fleet.epoch() == epoch + 1
        assert await leader.metric("tenure_fenced_writes_total") == 0, "counted, although nothing was sent"


async def test_without_the_trust_window_the_fence_refuses_a_frozen_leader(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """C03 (b): a leader that never doubts itself gets TN001 for its first write, and it is counted."""
    async with replicas(database, tmp_path, count=0) as fleet:
        (leader,) = await fleet.start(variant="without-trust")
        await fleet.leader()
        epoch = await fleet.epoch()
        await fleet.start(2)
        await fleet.define("work", fleet.effects.command(0.2))
        await frozen_until_replaced(fleet, leader, epoch)
        assert await leader_rows(fleet, epoch) == 0
        leader.cont()
        runs = await fleet.trigger("work", 20)

        async def refused() -> bool:
            return await leader.metric("tenure_fenced_writes_total") == 1

        await fleet.until(refused, within=3, what="one refused write")
        (line,) = [line for line in leader.said() if line.get("event") == "refused"]
        record_property("refusal", line["reason"])
        assert f"the tenure of epoch {epoch} is over" in line["reason"]
        await fleet.until(lambda: fleet.succeeded(runs), within=15, what="all runs to succeed")
        assert await leader_rows(fleet, epoch) == 0, "a deposed leader moved a run"
        assert await leader.metric("tenure_leader") == 0


async def leader_rows(fleet: Fleet, epoch: int) -> int:
    count = "SELECT count(*) FROM supervisor.job_run_history WHERE leader_epoch = $1 AND actor = 'leader'"
    return int(await fleet.value(count, epoch))


async def test_a_leader_that_was_frozen_with_claims_is_dead_before_it_could_go_on(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """C03 (c): the dead man's timer kills it at about S + k, its commands with it; others run them."""
    async with replicas(database, tmp_path) as fleet:
        leader, epoch = await fleet.leader(), await fleet.epoch()
        await fleet.define("work", fleet.effects.command(6, brood=True))
        runs = await fleet.trigger("work", 6)
        await fleet.until(lambda: fleet.running(runs), within=8, what="all running")
        lost = await fleet.on(leader, runs)
        assert len(lost) == 2
        leader.stop()
        began = boottime()
        assert await leader.replica.wait(timeout=S + K + 1) == -9
        died = boottime() - began
        record_property("dead after seconds", round(died, 2))
        assert died > S - 2 * H, "killed while it could still have been heard"

        async def commands_dead() -> bool:
            found = [fleet.effects.of(run) for run in lost]
            return not any(is_alive(pid) for one in found if one for pid in one.pids)

        await fleet.until(commands_dead, within=1, what="its commands to be dead")
        await fleet.led_after(epoch, TAKE_OVER - died)
        await fleet.until(lambda: fleet.succeeded(runs), within=D + C + 10 + 6, what="all runs to succeed")
        rows = {row["root_id"]: row for row in await fleet.last(runs)}
        assert {run for run, row in rows.items() if row["attempt"] == 2} == set(lost)
        for run in lost:
            one = fleet.effects.of(run)
            assert one is not None
            assert one.last - began < S + K + 0.5, "it worked on after its time"


async def test_a_leader_that_no_longer_hears_stops_renewing_and_is_replaced(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """Rule 4: its renewals would arrive, their answers do not: at R it stops, so that another can lead."""
    async with replicas(database, tmp_path, through_proxy=True) as fleet:
        leader, epoch = await fleet.leader(), await fleet.epoch()
        await fleet.define("work", fleet.effects.command(1))
        leader.cut_replies()
        began = time.monotonic()
        assert await fleet.led_after(epoch, R + TAKE_OVER) == epoch + 1
        record_property("take-over seconds", round(time.monotonic() - began, 2))
        assert await leader.metric("tenure_leader") == 0, "two replicas believe that they lead"
        runs = await fleet.trigger("work", 6)
        await leader.heal()
        await fleet.until(
            lambda: fleet.succeeded(runs), within=REASSIGN_AFTER + C + 10, what="all runs to succeed"
        )
        await everything_was_done_once(fleet, runs)
        assert await fleet.epoch() == epoch + 1


async def test_all_replicas_killed_and_started_again_together(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """C05: one leader within L + 4 s, everything ends, nothing overlaps."""
    async with replicas(database, tmp_path) as fleet:
        epoch = await fleet.epoch()
        await fleet.define("work", fleet.effects.command(3))
        runs = await fleet.trigger("work", 12)
        await fleet.until(lambda: fleet.running(runs), within=8, what="all running")
        began = time.monotonic()
        for member in fleet.members:
            await member.kill()
        fleet.members.clear()
        await fleet.start(3)
        await fleet.led_after(epoch, TAKE_OVER)
        record_property("led after seconds", round(time.monotonic() - began, 2))
        await fleet.until(lambda: fleet.succeeded(runs), within=D + C + 10 + 3, what="all runs to succeed")
        record_property("all done after seconds", round(time.monotonic() - began, 2))
        assert [row["epoch"] for row in await fleet.epochs()] == [epoch, epoch + 1]
        await everything_was_done_once(fleet, runs)


async def test_a_leader_asked_to_resign_lets_the_others_go_first(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    async with replicas(database, tmp_path) as fleet:
        leader, epoch = await fleet.leader(), await fleet.epoch()
        await fleet.define("work", fleet.effects.command(2))
        runs = await fleet.trigger("work", 6)
        await fleet.until(lambda: fleet.running(runs), within=8, what="all running")
        began = time.monotonic()
        await fleet.rows("SELECT * FROM supervisor.request_resign('test')")
        assert await fleet.led_after(epoch, 3) == epoch + 1
        record_property("take-over seconds", round(time.monotonic() - began, 2))
        assert await fleet.leader() is not leader
        await fleet.until(lambda: fleet.succeeded(runs), within=10, what="all runs to succeed")
        assert {row["attempt"] for row in await fleet.last(runs)} == {1}
        said = await fleet.rows("SELECT * FROM supervisor.tenure_log WHERE what = 'RESIGNED'")
        assert [(row["epoch"], row["reason"]) for row in said] == [(epoch, "REQUESTED")]
        await everything_was_done_once(fleet, runs)
