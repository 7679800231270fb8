"""A worker is killed, cut off, blocked, drained, or left without a leader."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.clock import boottime
from supervisor.embedded import Urls
from tests.support.replicas import C, D, Fleet, H, K, Member, S, replicas

pytestmark = pytest.mark.slow
Record = Callable[[str, object], None]


async def spread(fleet: Fleet, seconds: float, count: int, *, over: Member, brood: bool = False) -> list[int]:
    """So many runs, all executing, some of them there."""
    await fleet.define("work", fleet.effects.command(seconds, brood=brood))
    return await fleet.trigger_on(over, "work", count)


async def executed_once(fleet: Fleet, runs: list[int]) -> None:
    """Every one SUCCEEDED as attempt 1, by the database and by its effects."""
    await fleet.until(lambda: fleet.succeeded(runs), within=20, what="all runs to succeed")
    assert {row["attempt"] for row in await fleet.last(runs)} == {1}, await fleet.report()
    executions = fleet.effects.executions().values()
    assert sorted(one.run_id for one in executions) == sorted(runs)
    assert all(one.begins == 1 and one.ended for one in executions)


async def until_passed(fleet: Fleet, since: float, seconds: float) -> None:
    async def passed() -> bool:
        return boottime() >= since + seconds

    await fleet.until(passed, within=seconds + 1, what=f"{seconds} s to pass")


def alive(fleet: Fleet, runs: list[int]) -> list[int]:
    found = [fleet.effects.of(run) for run in runs]
    return [pid for one in found if one for pid in one.alive()]


async def test_a_worker_whose_answers_are_lost_for_less_than_s_goes_on_with_the_same_attempt(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """The twin of C10 with answers lost: CONFIRMING is set and cleared, attempt 1 succeeds."""
    async with replicas(database, tmp_path, through_proxy=True) as fleet:
        victim = fleet.others(await fleet.leader())[0]
        runs = await spread(fleet, 6, 6, over=victim)
        asked = await fleet.on(victim, runs)
        victim.cut_replies()
        began = boottime()

        async def confirming() -> bool:
            return all([(await fleet.run(run))["continuation_state"] == "CONFIRMING" for run in asked])

        await fleet.until(confirming, within=S - 0.5, what="CONFIRMING on the runs of the silent worker")
        record_property("confirming after seconds", round(boottime() - began, 2))
        await victim.heal()
        record_property("cut for seconds", round(boottime() - began, 2))
        await executed_once(fleet, runs)
        for run in asked:
            steps = [(row["continuation_state"], row["reason"]) for row in await fleet.history(run)]
            assert steps[3:5] == [("CONFIRMING", "SILENT"), ("NONE", "CONFIRMED")], steps
        for run in set(runs) - set(asked):
            assert len(await fleet.history(run)) == 4


async def test_a_worker_whose_answers_are_lost_has_stopped_before_attempt_2(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """C11 one way: what it sends may still arrive, what it is told does not."""
    async with replicas(database, tmp_path, through_proxy=True) as fleet:
        victim = fleet.others(await fleet.leader())[0]
        runs = await spread(fleet, 7, 6, over=victim, brood=True)
        lost = await fleet.on(victim, runs)
        victim.cut_replies()
        began = boottime()
        await stops_by_itself(fleet, lost, began, record_property)
        await runs_again(fleet, lost, began, record_property)
        await victim.heal()
        await fleet.until(lambda: fleet.succeeded(runs), within=15, what="all runs to succeed")
        for run in lost:
            first, second = await fleet.root(run)
            assert first["state"] == "TIMED_OUT"
            assert first["error_code"] in ("CONTINUATION_EXPIRED", "CONTINUATION_LOST")
            assert (second["state"], second["attempt"]) == ("SUCCEEDED", 2)
        await works_again(fleet, victim)


async def stops_by_itself(fleet: Fleet, runs: list[int], began: float, record_property: Record) -> None:
    async def dead() -> bool:
        return not alive(fleet, runs)

    await fleet.until(dead, within=S + K, what="what was cut off to stop")
    record_property("stopped after seconds", round(boottime() - began, 2))
    for run in runs:
        one = fleet.effects.of(run)
        assert one is not None
        lived = (one.last - began) / fleet.stretch
        assert S - 2 * H - 0.5 < lived < S + K, "stopped too early or too late"


async def runs_again(fleet: Fleet, runs: list[int], began: float, record_property: Record) -> None:
    async def again() -> bool:
        rows = [await fleet.root(run) for run in runs]
        return all(len(row) == 2 and fleet.effects.of(row[1]["id"]) for row in rows)

    left = D + C + 4 - (boottime() - began) / fleet.stretch
    await fleet.until(again, within=left, what="attempt 2")
    record_property("attempt 2 after seconds", round(boottime() - began, 2))


async def works_again(fleet: Fleet, member: Member) -> None:
    """A replica that came back takes its share of new work."""
    await fleet.define("after", fleet.effects.command(0.2))

    async def shares() -> bool:
        rows = await fleet.rows(
            """SELECT FROM supervisor.job_run r JOIN supervisor.job_definition d ON d.id = r.job_definition_id
               WHERE d.name = 'after' AND r.assigned_worker_id = $1 AND r.state = 'SUCCEEDED'""",
            member.worker_id,
        )
        if not rows:
            await fleet.trigger("after", 6)
        return bool(rows)

    await fleet.until(shares, within=8, what="the healed replica to work", interval=1)


async def test_a_worker_drained_by_an_operator_leaves_and_its_work_ends_or_moves(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    async with replicas(database, tmp_path, drain_seconds=2) as fleet:
        victim = fleet.others(await fleet.leader())[0]
        await fleet.define("brief", fleet.effects.command(2))
        await fleet.define("lengthy", fleet.effects.command(6), max_attempts=1)
        lengthy = await fleet.trigger_on(victim, "lengthy", 6)
        brief = await fleet.trigger("brief", 6)
        await fleet.until(lambda: fleet.running([*brief, *lengthy]), within=8, what="all running")
        moved = await fleet.on(victim, lengthy)
        assert moved
        began = time.monotonic()
        await fleet.rows("SELECT * FROM supervisor.request_drain('test', $1)", victim.worker_id)
        assert await victim.replica.wait(timeout=(2 * H + 2 + K + 5) * fleet.stretch) == 0
        record_property("left after seconds", round(time.monotonic() - began, 2))
        later = await fleet.trigger("brief", 6)
        await fleet.until(
            lambda: fleet.succeeded([*brief, *lengthy, *later]), within=15, what="all runs to succeed"
        )
        for run in moved:
            first, second = await fleet.root(run)
            assert (first["state"], first["error_code"]) == ("FAILED", "DRAINED")
            assert (second["state"], second["starts"]) == ("SUCCEEDED", 1)
        assert not {row["assigned_worker_id"] for row in await fleet.last(later)} & {victim.worker_id}
        assert len(await fleet.epochs()) == 1


async def test_without_a_leader_a_worker_asks_itself_how_long_it_goes_on(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """Rule 8, R003-43: NO_LEADER after C; a leader in time clears it, else it stops at the deadline."""
    async with replicas(database, tmp_path, count=0) as fleet:
        (first,) = await fleet.start(variant="leads-only")
        await fleet.leader()
        (second,) = await fleet.start(variant="leads-only")
        (worker,) = await fleet.start(variant="never-leads")
        runs = await spread(fleet, 8, 2, over=worker)
        second.stop()  # nobody may follow, but somebody must be there in time
        await left_alone(fleet, first, runs, record_property)
        second.cont()
        await executed_once(fleet, runs)
        for run in runs:
            steps = [(row["continuation_state"], row["reason"]) for row in await fleet.history(run)]
            assert steps[3:5] == [("CONFIRMING", "NO_LEADER"), ("NONE", "CONFIRMED")], steps

        await fleet.define("longer", fleet.effects.command(30), max_attempts=1)
        runs = await fleet.trigger("longer", 2)
        await fleet.until(lambda: fleet.running(runs), within=8, what="all running")
        began = await left_alone(fleet, second, runs, record_property)

        async def stopped() -> bool:
            return not alive(fleet, runs)

        await fleet.until(stopped, within=D + 2 * H + K + 1, what="the worker to stop")
        record_property("stopped after seconds", round(boottime() - began, 2))
        assert boottime() - began > (D - 0.5) * fleet.stretch, "it stopped before its deadline"

        async def recorded() -> bool:
            return await fleet.states(runs) == {"TIMED_OUT": 2}

        await fleet.until(recorded, within=3, what="TIMED_OUT, by the worker")
        for run in runs:
            row = await fleet.run(run)
            assert (row["finished_by"], row["error_code"]) == ("worker", "CONTINUATION_LOST")
            assert row["executor_stopped_at"] is not None
        assert worker.alive


async def left_alone(fleet: Fleet, leader: Member, runs: list[int], record_property: Record) -> float:
    """The leader resigns, nobody follows; returns the time at which every run was CONFIRMING."""
    leader.term()
    began = boottime()

    async def confirming() -> bool:
        return all([(await fleet.run(run))["continuation_state"] == "CONFIRMING" for run in runs])

    await fleet.until(confirming, within=C + 2 * H + 1.5, what="CONFIRMING by the worker itself")
    record_property("confirming after seconds", round(boottime() - began, 2))
    assert boottime() - began > (C - 0.1) * fleet.stretch, "asked too early"
    return boottime()


async def test_a_beat_refused_for_a_while_is_not_the_end_of_beats(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """Whatever a beat is answered, the next one is tried; a replica never lives on without beats."""
    async with replicas(database, tmp_path, count=2) as fleet:
        beat = (
            "supervisor.beat(text, uuid, bigint, bigint, uuid[], text[], integer, double precision, boolean)"
        )
        await fleet.rows(f"REVOKE EXECUTE ON FUNCTION {beat} FROM tenure_worker")
        began = boottime()
        await until_passed(fleet, began, 1.5 * fleet.stretch)
        await fleet.rows(f"GRANT EXECUTE ON FUNCTION {beat} TO tenure_worker")

        async def heard() -> bool:
            living = [one.worker_id for one in fleet.members if one.alive]
            ages = await fleet.rows(
                """SELECT clock_timestamp() - heartbeat_at < make_interval(secs => $2) AS heard
                   FROM supervisor.worker WHERE worker_id = ANY ($1::text[])""",
                living,
                2 * H * fleet.stretch,
            )
            return all(row["heard"] for row in ages)

        await fleet.until(heard, within=4, what="every living replica to beat again")


async def test_what_a_replica_beats_for_and_never_looks_at_is_given_back(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    """The leader leaves a run with a worker that is heard (R003-40); so the beats themselves let go of it."""
    async with replicas(database, tmp_path, count=2) as fleet:
        await fleet.define("work", fleet.effects.command(0.2))
        (wedged,) = await fleet.start(variant="neglects")
        began = boottime()
        runs: list[int] = []

        async def given() -> list[int]:
            # the leader counts its workers once a second, and may not have counted one that has just come
            runs.extend(await fleet.trigger("work", 9))
            await fleet.until(lambda: fleet.assigned(runs), within=S, what="no run that waits")
            return await fleet.on(wedged, runs, "ASSIGNED")

        held = await fleet.until(
            given, within=S, what="work for the replica that does not look", interval=0.5
        )
        await fleet.until(lambda: fleet.succeeded(runs), within=D + 2 * H + 5, what="all runs to succeed")
        record_property("given back and done after seconds", round(boottime() - began, 2))
        for run in held:
            (row,) = await fleet.root(run)
            assert (row["starts"], row["attempt"], row["fruitless_assignments"]) == (1, 2, 0)
            moves = [(step["to_state"], step["reason"]) for step in await fleet.history(run)]
            assert ("ORPHANED", "RELEASED") in moves
        taken = "SELECT state, domains FROM supervisor.worker WHERE worker_id = $1"
        assert await fleet.rows(taken, wedged.worker_id) == [{"state": "active", "domains": []}]
        later = await fleet.trigger("work", 9)
        await fleet.until(lambda: fleet.succeeded(later), within=5, what="work that it is not given")
        assert {row["attempt"] for row in await fleet.last(later)} == {1}
        await fleet.faultless()
