"""The leader is killed, drained, frozen, asked to go, or dies together with all the others."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.embedded import Urls
from tests.support.replicas import Fleet, K, replicas

pytestmark = pytest.mark.slow
Record = Callable[[str, object], None]


async def everything_was_done_once(fleet: Fleet, runs: list[int]) -> None:
    assert await fleet.states(runs) == {"SUCCEEDED": len(runs)}, await fleet.report()
    done = [one.run_id for one in fleet.effects.executions().values() if one.ended]
    roots = {row["id"]: row["root_id"] for run in runs for row in await fleet.root(run)}
    assert sorted(roots[run] for run in done) == sorted(runs), "done not exactly once"


async def test_a_drained_leader_is_replaced_at_once_and_its_work_ends_or_moves(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """C02: a new epoch within 3 s; what fits the grace ends as attempt 1, the rest is done elsewhere."""
    async with replicas(database, tmp_path, drain_seconds=3) as fleet:
        leader, epoch = await fleet.leader(), await fleet.epoch()
        await fleet.define("brief", fleet.effects.command(2.5))
        await fleet.define("lengthy", fleet.effects.command(8), max_attempts=1)
        lengthy = await fleet.trigger_on(leader, "lengthy", 6)
        brief = await fleet.trigger_on(leader, "brief", 6)
        ours, moved = await fleet.on(leader, brief), await fleet.on(leader, lengthy)
        assert ours, "the leader has no brief run"
        assert moved, "the leader has no lengthy run"
        began = time.monotonic()
        leader.term()
        await fleet.led_after(epoch, 3)
        record_property("take-over seconds", round(time.monotonic() - began, 2))
        assert await leader.replica.wait(timeout=(3 + K + 5) * fleet.stretch) == 0
        record_property("drained after seconds", round(time.monotonic() - began, 2))
        assert time.monotonic() - began > 2.9 * fleet.stretch, "the grace was not given"
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
