"""A worker is killed, stopped or cut off: its work goes on where it can, and is never done twice at once."""

import random
from collections import defaultdict
from itertools import pairwise
from typing import Final

from supervisor.clock import boottime
from tests.chaos.executions import Execution
from tests.chaos.faults import BlockLoop, Cut, Kill, Pause
from tests.chaos.judge import calls
from tests.chaos.layer import Way
from tests.chaos.load import SCRIPT, Load, command
from tests.chaos.member import Member
from tests.chaos.scenario import Inconclusive, Scenario
from tests.chaos.topology import Topology
from tests.chaos.world import World
from tests.support.replicas import TAKE_OVER, C, D, H, K, S

BLOCKABLE: Final = "r3"
WAYS: Final[tuple[Way, ...]] = ("both", "requests", "replies")
SETUP_SECONDS: Final = 30.0
RERUN_SECONDS: Final = D + C + 4
CALM: Final = Load(per_second=0.5, seconds=(0.2, 1), failing=0, poison=0)


async def victim_with_work(world: World, seconds: float) -> tuple[Member, list[int]]:
    """A replica that does not lead, and runs of so many seconds that it is executing."""
    leader = await world.leader()
    victim = world.others(leader)[0]
    return victim, await work_on(world, victim.host, seconds)


async def cut_for_less_than_s(world: World, chance: random.Random) -> None:
    victim, runs = await victim_with_work(world, S + 3)
    way = chance.choice(WAYS)
    async with world.during(Cut(victim.host, "pg1", way)):
        await world.passed(boottime(), chance.uniform(C + H, C + 2 * H))
    await same_attempts_succeed(world, runs, f"a short cut ({way})")


async def cut_for_more_than_d(world: World, chance: random.Random) -> None:
    victim, runs = await victim_with_work(world, S + 2)
    lost = [one for one in world.executions() if one.run in runs]
    began = boottime()
    # where only replies are lost, a finish is not late: it arrives
    async with world.during(Cut(victim.host, "pg1", chance.choice(WAYS[:2]))):
        await done_again(world, {one.root for one in lost}, began)
        assert not [pid for one in lost for pid in one.alive()], "the lost attempts are still executing"
        await world.passed(began, D + C + chance.uniform(1, 4))
    late = "SELECT count(*) FROM supervisor.late_finish WHERE run_id = ANY ($1)"

    async def told() -> bool:
        return bool(await world.see.value(late, runs))

    await world.see.until(told, within=SETUP_SECONDS, what="a late finish to be refused")


async def cut_for_more_than_d_control(world: World, _chance: random.Random) -> None:
    """Long enough commands that the first attempt is still at it when the second begins."""
    victim, runs = await victim_with_work(world, D + C + 6)
    roots = {one.root for one in world.executions() if one.run in runs}
    began = boottime()
    async with world.during(Cut(victim.host, "pg1")):
        await done_again(world, roots, began)
        await world.passed(boottime(), 0.5)


async def killed(world: World, chance: random.Random) -> None:
    """Everything it started dies with it; what it had is done again."""
    victim, runs = await victim_with_work(world, 6)
    lost = [one for one in world.executions() if one.run in runs]
    await world.passed(boottime(), chance.uniform(0, 1))
    began = boottime()

    async def dead() -> bool:
        return not [pid for one in lost for pid in one.alive()]

    async with world.during(Kill(victim.host)):
        await world.see.until(dead, within=1, what="its commands to be dead", interval=0.02)
        world.figure("commands_dead", boottime() - began)
        await done_again(world, {one.root for one in lost}, began)


async def loop_blocked(world: World, chance: random.Random) -> None:
    """Beats have a thread of their own; only a held interpreter's lock stops them too."""
    for seconds in (S / 2, 2 * S):
        runs = await work_on(world, BLOCKABLE, 3)
        async with world.during(BlockLoop(BLOCKABLE, seconds)):
            await world.passed(boottime(), seconds + chance.uniform(0.5, 1))
        await same_attempts_succeed(world, runs, f"a loop blocked for {seconds:g} s")
    runs = await work_on(world, BLOCKABLE, 6)
    blocked = world.members[BLOCKABLE]
    began = boottime()

    async def ended() -> bool:
        return not blocked.alive

    async with world.during(BlockLoop(BLOCKABLE, 4 * S, hold=True)):
        await world.see.until(ended, within=S + K + 2, what="the dead man's timer")
        world.figure("killed", boottime() - began)


async def given_to_a_blocked_loop(world: World, chance: random.Random) -> None:
    """It is heard, so the leader leaves it what it was given; its own beats give that back."""
    await work_on(world, BLOCKABLE, 0.5)
    began = boottime()
    async with world.during(BlockLoop(BLOCKABLE, D + S)):
        await world.passed(began, chance.uniform(0.2, 1))
        runs = await world.see.trigger("load", 3 * world.topology.replicas, command(0.2))

        async def succeeded() -> bool:
            return await world.see.succeeded(runs)

        await world.see.until(succeeded, within=RERUN_SECONDS, what="others to do what it was given")
        world.figure("rerun", boottime() - began)
        await world.passed(began, D + S + 1)


async def work_on(world: World, host: str, seconds: float) -> list[int]:
    """Runs of so many seconds that this replica is executing."""
    worker = world.members[host].worker_id
    wanted: set[int] = set()

    async def executing() -> list[int]:
        # in this order: what waits no more is with somebody, and is seen there
        waiting = {"PENDING", "ASSIGNED"} & set(await world.see.states(sorted(wanted)))
        mine = wanted.intersection(await world.see.on(worker))
        # where all went to others, there have to be more
        if not mine and not waiting:
            wanted.update(await world.see.trigger("load", 2 * world.topology.replicas, command(seconds)))
        # past their offer to the sink: a sign of life came after the beginning
        begun = {one.run for one in world.executions() if one.last > one.first}
        return sorted(mine) if mine <= begun else []

    runs: list[int] = await world.see.until(executing, within=SETUP_SECONDS, what=f"work on {host}")
    return runs


async def same_attempts_succeed(world: World, runs: list[int], what: str) -> None:
    ended = "SELECT id, state, error_code FROM supervisor.job_run WHERE id = ANY ($1)"

    async def over() -> bool:
        return all(row["state"] != "RUNNING" for row in await world.see.rows(ended, runs))

    await world.see.until(over, within=SETUP_SECONDS, what="the same attempts to end")
    rows = await world.see.rows(ended, runs)
    if (
        any(row["error_code"] == "CONTINUATION_LOST" for row in rows)
        and (gap := longest_silence(world)) > S * world.stretch
    ):
        raise Inconclusive(f"{what}: no beat was answered for {gap:.1f} s, which is longer than S")
    assert all(row["state"] == "SUCCEEDED" for row in rows), f"{what} cost attempts: {rows}"


async def done_again(world: World, roots: set[int], since: float) -> None:
    """Wait for their second attempts: in time, unless the leader changed meanwhile."""
    epoch = await world.see.epoch()

    async def again() -> bool:
        return {one.root for one in world.executions() if one.attempt > 1} >= roots

    await world.see.until(again, within=RERUN_SECONDS + 2 * TAKE_OVER, what="the next attempts to execute")
    taken = boottime() - since
    world.figure("rerun", taken)
    if await world.see.epoch() == epoch:
        assert taken < RERUN_SECONDS * world.see.crowding, f"the next attempts came after {taken:.1f} s"


def longest_silence(world: World) -> float:
    """From the send of an answered beat to the answer of the next one that was."""
    sent: dict[str, float] = {}
    answered: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for call in calls(world.history):
        if call["f"] == "beat_worker" and call["kind"] == "invoke":
            sent[call["op_id"]] = call["t"]
        elif call["f"] == "beat_worker" and call["kind"] == "ok":
            answered[call["worker"]].append((sent[call["op_id"]], call["t"]))
    gaps = [after[1] - before[0] for beats in answered.values() for before, after in pairwise(beats)]
    return max(gaps, default=0.0)


async def over_its_time(world: World, _chance: random.Random) -> None:
    """The leader ends a run that is over its time; its worker, just cut off, is still at it until S."""
    limit = 1.5
    slow_at_first = f'exec bash {SCRIPT} "$(( TENURE_ATTEMPT > 1 ? 100 : {round(100 * (2 * D + 8))} ))" done'
    payload = {"argv": ["bash", "-c", slow_at_first]}
    await world.see.define("short-of-time", payload, timeout_seconds=limit, max_attempts=2)
    (root,) = await world.see.trigger("short-of-time")

    async def begun() -> Execution | None:
        return next((one for one in world.executions() if one.root == root), None)

    async def again() -> bool:
        return any(one.root == root and one.attempt > 1 for one in world.executions())

    first: Execution = await world.see.until(begun, within=SETUP_SECONDS, what="it to be executed")
    # the leader waits for D after the limit, and watches for D
    await world.passed(first.first, limit + 2 * D - H)
    async with world.during(Cut(first.host, "pg1")):
        await world.see.until(again, within=S + D + C, what="the next attempt")


async def paused(world: World, chance: random.Random) -> None:
    """The whole worker stands still while its work is done again elsewhere, and then goes on."""
    victim, runs = await victim_with_work(world, 4)
    lost = {one.root for one in world.executions() if one.run in runs}
    began = boottime()
    async with world.during(Pause(victim.host)):
        await done_again(world, lost, began)
        await world.passed(boottime(), chance.uniform(0.2, 0.5))


SCENARIOS: Final = (
    Scenario(
        "C06",
        "a worker is killed",
        killed,
        rules=(8, 9, 11),
        expects=("restart", "timed_out", "retried"),
        load=CALM,
    ),
    Scenario(
        "C09",
        "a worker's event loop is blocked for S/2, for 2 S, and with the interpreter's lock",
        loop_blocked,
        rules=(11, 21),
        expects=("fault", "death", "retried"),
        topology=Topology(variants={BLOCKABLE: "blockable"}),
        load=CALM,
    ),
    Scenario(
        "C09b",
        "a worker's event loop is blocked while it is given work: it beats, and gives that back",
        given_to_a_blocked_loop,
        rules=(20, 21),
        expects=("fault", "released", "reassigned"),
        topology=Topology(variants={BLOCKABLE: "blockable"}),
        load=CALM,
    ),
    Scenario(
        "C10",
        "a worker is cut off from the database for less than S",
        cut_for_less_than_s,
        rules=(7, 8),
        expects=("confirming", "confirmed"),
        needs=("cut", "one-way"),
        load=Load(per_second=1, seconds=(0.2, 2)),
        quick=True,
    ),
    Scenario(
        "C11",
        "a worker is cut off from the database for more than D",
        cut_for_more_than_d,
        rules=(7, 8, 9, 10),
        expects=("confirming", "timed_out", "retried", "late_finish"),
        needs=("cut", "one-way"),
        load=Load(per_second=1, seconds=(0.2, 2)),
        quick=True,
    ),
    Scenario(
        "C07",
        "a worker and everything it started stand still: the dead man's timer ends them",
        paused,
        rules=(11,),
        expects=("timed_out", "retried"),
        load=CALM,
    ),
    Scenario(
        "C08",
        "the same without the dead man's timer: an overlap is reported (control)",
        paused,
        rules=(11,),
        expects=("timed_out", "retried"),
        load=CALM,
        guards_off=("11",),
        reports=("K8",),
    ),
    Scenario(
        "N07",
        "a worker that does not stop by itself is cut off for more than D (control)",
        cut_for_more_than_d_control,
        rules=(7,),
        expects=("timed_out", "retried"),
        needs=("cut",),
        load=CALM,
        guards_off=("7",),
        reports=("K8",),
    ),
    Scenario(
        "N10",
        "the next attempt does not wait for the stop of the last (control)",
        over_its_time,
        rules=(10,),
        expects=("timed_out", "retried"),
        load=CALM,
        guards_off=("10",),
        topology=Topology(variants={"r1": "leads-only", "r2": "never-times-out", "r3": "never-times-out"}),
        reports=("K8", "K15"),
    ),
)
