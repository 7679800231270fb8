"""Cancelling what runs, what waits, and what stands behind it."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from supervisor.clock import boottime
from supervisor.embedded import Urls
from tests.support.replicas import C, D, Fleet, H, K, S, replicas

pytestmark = pytest.mark.slow
Record = Callable[[str, object], None]

NOTE = """
note() { read now _ < /proc/uptime; echo "$now $1 $TENURE_RUN_ID $TENURE_ATTEMPT $TENURE_CLAIM $$" >> "$0"; }
"""
UNTIL_TOLD = f"""{NOTE}
note begin
while [ ! -e "$0.told" ]; do sleep 0.1; note alive; done
note end
"""
# Hears SIGTERM and says so; its double-forked child does not want to hear it.
STUBBORN = f"""{NOTE}
trap 'note term; exit 3' TERM
( setsid sh -c 'trap "" TERM; while :; do
    read now _ < /proc/uptime
    echo "$now alive $TENURE_RUN_ID $TENURE_ATTEMPT $TENURE_CLAIM $$" >> "$0"; sleep 0.1
done' "$0" & )
note begin
while :; do sleep 0.1; note alive; done
"""


async def cancel(fleet: Fleet, run: int) -> None:
    await fleet.rows("SELECT * FROM supervisor.request_cancel('test', $1)", run)


def canceled(fleet: Fleet, run: int) -> Callable[[], Awaitable[bool]]:
    async def ended() -> bool:
        return bool((await fleet.run(run))["state"] == "CANCELED")

    return ended


async def test_cancelling_a_running_run_ends_all_its_processes_and_nothing_retries_it(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """C37: SIGTERM, then SIGKILL to every descendant; the next run of the job starts only after that."""
    async with replicas(database, tmp_path) as fleet:
        await fleet.define("stubborn", fleet.effects.script(STUBBORN), concurrency=1)
        first, second = await fleet.trigger("stubborn", 2)
        await fleet.until(lambda: fleet.running([first]), within=8, what="the first run")

        async def brood() -> bool:
            one = fleet.effects.of(first)
            return one is not None and len(one.alive()) == 2

        await fleet.until(brood, within=3, what="the command and its child")
        began = boottime()
        await cancel(fleet, first)
        await fleet.until(canceled(fleet, first), within=2 * H + K + 2, what="CANCELED")
        record_property("canceled after seconds", round(boottime() - began, 2))
        row = await fleet.run(first)
        assert (row["finished_by"], row["retry_at"], row["next_attempt_id"]) == ("worker", None, None)
        assert row["executor_stopped_at"] is not None
        one = fleet.effects.of(first)
        assert one is not None
        assert one.alive() == []
        assert " term " in fleet.effects.file.read_text(), "it was not asked before it was killed"

        await fleet.until(lambda: fleet.running([second]), within=3, what="the next run of the job")
        follower = fleet.effects.of(second)
        assert follower is not None
        assert one.last < follower.first, "the next run began while the first was still alive"
        await cancel(fleet, second)
        await fleet.until(canceled(fleet, second), within=2 * H + K + 2, what="the second, canceled too")
        assert len(await fleet.root(first)) == len(await fleet.root(second)) == 1


async def test_a_cancelled_run_of_a_lost_worker_keeps_its_place_until_it_has_certainly_stopped(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """C37 with the worker cut off: the leader ends it after D; the next run waits for that too."""
    async with replicas(database, tmp_path, count=0, through_proxy=True) as fleet:
        await fleet.start(variant="leads-only")
        await fleet.leader()
        (victim,) = await fleet.start()
        await fleet.define("single", fleet.effects.command(20), concurrency=1)
        (first,) = await fleet.trigger("single")
        await fleet.until(lambda: fleet.running([first]), within=8, what="the first run")
        await fleet.start()
        (second,) = await fleet.trigger("single")
        victim.cut()
        began = boottime()
        await cancel(fleet, first)
        await fleet.until(canceled(fleet, first), within=D + C + 4, what="CANCELED by the leader")
        record_property("canceled after seconds", round(boottime() - began, 2))
        assert boottime() - began > (S + K) * fleet.stretch, "ended while it could still have been executed"
        await fleet.until(lambda: fleet.running([second]), within=5, what="the next run of the job")
        one, follower = fleet.effects.of(first), fleet.effects.of(second)
        assert one is not None
        assert follower is not None
        assert one.last < follower.first
        record_property("stopped after seconds", round(one.last - began, 2))
        record_property("next began after seconds", round(follower.first - began, 2))
        assert len(await fleet.root(first)) == 1, "a cancelled run was tried again"
        await victim.heal()
        late = "SELECT state FROM supervisor.late_finish WHERE run_id = $1"

        async def evidence() -> bool:
            return bool(await fleet.value(late, first))

        await fleet.until(evidence, within=8, what="its late completion")
        await cancel(fleet, second)
        await fleet.until(canceled(fleet, second), within=5, what="the second, canceled too")


async def test_cancelling_what_waits_leaves_both_moves_in_the_history(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """A queued run goes ASSIGNED (to the leader) and CANCELED in one call, whatever it waited for."""
    async with replicas(database, tmp_path, count=2, TENURE_SLOTS="2") as fleet:
        leader = await fleet.leader()
        await fleet.define("nobody", {"x": 1}, domain="nobody")
        await fleet.define("long", fleet.effects.script(UNTIL_TOLD))
        await fleet.define("behind", fleet.effects.command(0.1))
        (orphan,) = await fleet.trigger("nobody")
        busy = await fleet.trigger("long", 4)
        await fleet.until(lambda: fleet.running(busy), within=8, what="all slots taken")
        behind, kept = await fleet.trigger("behind", 2)
        began = boottime()
        for run in (orphan, behind):
            await cancel(fleet, run)
        for run in (orphan, behind):
            await fleet.until(canceled(fleet, run), within=2, what="CANCELED")
        record_property("canceled after seconds", round(boottime() - began, 2))
        for run in (orphan, behind):
            steps = [
                (row["from_state"], row["to_state"], row["worker_id"]) for row in await fleet.history(run)
            ]
            assert steps == [
                (None, "PENDING", None),
                ("PENDING", "ASSIGNED", leader.worker_id),
                ("ASSIGNED", "CANCELED", leader.worker_id),
            ]
            assert (await fleet.run(run))["starts"] == 0
            assert fleet.effects.of(run) is None
        (tmp_path / "effects.told").touch()
        await fleet.until(lambda: fleet.succeeded([*busy, kept]), within=10, what="the others to succeed")
