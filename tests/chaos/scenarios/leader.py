"""The leader is killed, drained or stopped: another leads in time, and the old one does nothing."""

import random
from typing import Final

from supervisor.clock import boottime
from tests.chaos.faults import Cut, Freeze, Kill, Term
from tests.chaos.judge import calls
from tests.chaos.load import Load, command
from tests.chaos.scenario import Bounds, Scenario
from tests.chaos.scenarios.worker import work_on
from tests.chaos.topology import Topology
from tests.chaos.world import World
from tests.support.replicas import TAKE_OVER, L, R

RESIGNED_SECONDS: Final = 3.0
SETUP_SECONDS: Final = 30.0
SLACK_SECONDS: Final = 0.5
RENEWALS: Final = ("acquire_tenure", "renew_tenure")
SESSIONS: Final = 30
# r1 and r2 lead and hold no claim (so nothing kills them while they are stopped), r3 only works
LEADERS: Final = {"r1": "leads-only", "r2": "leads-only", "r3": "never-leads"}

BLIND: Final = Topology(variants={**LEADERS, "r1": "blind", "r2": "blind"}, slots=8)


async def taken_over(world: World, epoch: int, began: float, within: float) -> None:
    await world.see.led_after(epoch, within)
    world.figure("leader_gap", boottime() - began)


async def killed(world: World, chance: random.Random) -> None:
    await world.passed(boottime(), chance.uniform(0, 2))
    leader, epoch = await world.leader(), await world.see.epoch()
    began = boottime()
    async with world.during(Kill(leader.host)):
        await taken_over(world, epoch, began, TAKE_OVER)


async def drained(world: World, chance: random.Random) -> None:
    await world.passed(boottime(), chance.uniform(0, 2))
    leader, epoch = await world.leader(), await world.see.epoch()
    assigned = await world.see.on(leader.worker_id, "ASSIGNED")
    began = boottime()
    async with world.during(Term(leader.host)):
        await taken_over(world, epoch, began, RESIGNED_SECONDS)
    for row in await world.see.rows(
        "SELECT id, starts, attempt, fruitless_assignments FROM supervisor.job_run WHERE id = ANY ($1)",
        assigned,
    ):
        assert row["fruitless_assignments"] == 0, f"a drained assignment was counted: {dict(row)}"


async def stopped_without_claims(world: World, chance: random.Random) -> None:
    """It wakes up 2L later, sends no write of a leader, and follows."""
    leader, epoch = await world.leader(), await world.see.epoch()
    assert leader.variant == "leads-only"
    await world.passed(boottime(), chance.uniform(0, 1))
    began = boottime()
    async with world.during(Freeze(leader.host)):
        await taken_over(world, epoch, began, TAKE_OVER)
        await world.passed(began, 2 * L)
    woken = boottime()
    assert leader.alive, "a leader without claims was killed"
    await world.passed(woken, 2)
    sent = [
        call
        for call in calls(world.history)
        if call["worker"] == leader.worker_id and call["kind"] == "invoke" and call["t"] > woken
    ]
    stale = [call for call in sent if call["args"].get("epoch") == epoch and call["f"] != "renew_tenure"]
    assert not stale, f"it still acted as the leader of epoch {epoch}: {stale[:3]}"
    assert await world.see.epoch() > epoch


async def stopped_and_blind(world: World, chance: random.Random) -> None:
    """A leader that never doubts itself wakes up behind the next one: its first write is refused."""
    leader, epoch = await world.leader(), await world.see.epoch()
    assert leader.variant == "blind"
    began = boottime()
    async with world.during(Freeze(leader.host)):
        await taken_over(world, epoch, began, TAKE_OVER)
        await world.passed(began, L + chance.uniform(2, L))
    await world.see.trigger("load", 3, command(0.2))

    async def fenced() -> bool:
        return any(
            call["worker"] == leader.worker_id and call.get("sqlstate") == "TN001"
            for call in calls(world.history)
        )

    await world.see.until(fenced, within=SETUP_SECONDS, what="its write to be refused")
    assert await leader.metric("tenure_fenced_writes_total") >= 1


async def stopped_with_claims(world: World, chance: random.Random) -> None:
    """The dead man's timer kills it before it can wake up; it comes back as somebody else."""
    leader, epoch = await world.leader(), await world.see.epoch()
    await work_on(world, leader.host, 5)
    before = leader.worker_id
    began = boottime()
    async with world.during(Freeze(leader.host)):
        await taken_over(world, epoch, began, TAKE_OVER)
        await world.passed(began, 2 * L)
        assert not leader.alive, "a leader with claims outlived its dead man's timer"
    assert leader.worker_id != before


async def stopped_in_the_middle_of_a_call(world: World, _chance: random.Random) -> None:
    """The call goes on in the server; the answer finds nobody, and no lock stays."""
    leader, epoch = await world.leader(), await world.see.epoch()
    holding = await world.see.connection()
    held = holding.transaction()
    await held.start()
    await holding.execute("SELECT FROM supervisor.leader_epoch FOR UPDATE")
    (run,) = await world.see.trigger("load", 1, command(0.5))
    waiting = """SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'assign'
                 AND application_name = $1"""

    async def sent() -> bool:
        return bool(await world.see.value(waiting, f"tenure/{leader.worker_id}"[:63]))

    await world.see.until(sent, within=3, what="the leader's call to wait", interval=0.01)
    began = boottime()
    async with world.during(Freeze(leader.host)):
        await held.rollback()
        await holding.close()

        async def done() -> bool:
            state = "SELECT state <> 'PENDING' FROM supervisor.job_run WHERE id = $1"
            return bool(await world.see.value(state, run))

        await world.see.until(done, within=2, what="the call to be done without the caller")
        left = """SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tenure/%'
                  AND xact_start < clock_timestamp() - make_interval(secs => $1)"""
        await world.passed(began, 2.5)
        assert await world.see.value(left, 2 * world.stretch) == 0, "a transaction was left open"
        await taken_over(world, epoch, began, TAKE_OVER)


async def cut_off(world: World, chance: random.Random) -> None:
    """Nothing of it arrives: its lease runs out. It has stopped to act before that, at R."""
    leader, epoch = await world.leader(), await world.see.epoch()
    began = boottime()
    async with world.during(Cut(leader.host, "pg1", "both" if chance.random() < 0.5 else "requests")):
        await taken_over(world, epoch, began, TAKE_OVER)
        await world.passed(boottime(), chance.uniform(0, 3))
    await no_longer_leads(world, leader.worker_id, epoch)


async def deaf(world: World, chance: random.Random) -> None:
    """Its renewals arrive and their answers do not: it must stop sending them, or it would lead for ever."""
    leader, epoch = await world.leader(), await world.see.epoch()
    began = boottime()
    async with world.during(Cut(leader.host, "pg1", "replies")):
        await taken_over(world, epoch, began, R + TAKE_OVER)
        await world.passed(boottime(), chance.uniform(0, 3))
    await no_longer_leads(world, leader.worker_id, epoch)


async def no_longer_leads(world: World, worker_id: str, epoch: int) -> None:
    """What it sent as the leader of that epoch, it sent while it trusted itself: within R of an answer."""
    await world.passed(boottime(), 1)
    own = [call for call in calls(world.history) if call["worker"] == worker_id]
    sent = {call["op_id"]: call for call in own if call["kind"] == "invoke"}
    renewed = [sent[call["op_id"]]["t"] for call in own if call["f"] in RENEWALS and call["kind"] == "ok"]
    mine = [call for call in sent.values() if call["args"].get("epoch") == epoch]
    trust = (R + SLACK_SECONDS) * world.stretch
    late = [call for call in mine if not any(time <= call["t"] <= time + trust for time in renewed)]
    assert not late, f"it acted after its trust was over: {late[:3]}"


async def all_killed(world: World, chance: random.Random) -> None:
    epoch = await world.see.epoch()
    await world.passed(boottime(), chance.uniform(1, 3))
    for host in world.members:
        await world.begin(Kill(host))
    await world.heal()
    await taken_over(world, epoch, world.healed_at, TAKE_OVER)
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tenure/%'"
    world.figure("sessions", await world.see.value(sessions))
    assert await world.see.value(sessions) <= SESSIONS * len(world.members), "too many sessions"
    assert await world.see.epoch() == epoch + 1, "more than one of them took over"


async def two_leaders(world: World, _chance: random.Random) -> None:
    """The old one goes on while the new one stands still, and gives out work under its old epoch."""
    old, epoch = await world.leader(), await world.see.epoch()
    began = boottime()
    await world.begin(Freeze(old.host))
    await taken_over(world, epoch, began, TAKE_OVER)
    new = await world.leader()
    async with world.during(Freeze(new.host)):
        await world.end(Freeze(old.host))
        runs = await world.see.trigger("load", 3, command(0.2))

        async def given() -> bool:
            return "PENDING" not in await world.see.states(runs)

        await world.see.until(given, within=3, what="the old leader to give out work")


async def long_work_over_a_take_over(world: World, chance: random.Random) -> None:
    leader = await world.leader()
    runs = await world.see.trigger("load", 2 * world.topology.replicas, command(TAKE_OVER + 2))

    async def running() -> bool:
        return await world.see.running(runs)

    await world.see.until(running, within=SETUP_SECONDS, what="all running")
    await killed(world, chance)
    assert (await world.leader()).worker_id != leader.worker_id


SCENARIOS: Final = (
    Scenario(
        "C01",
        "the leader is killed",
        killed,
        rules=(2, 3, 4),
        expects=("leader_change", "restart"),
        quick=True,
    ),
    Scenario(
        "C02",
        "the leader is drained",
        drained,
        rules=(20,),
        expects=("leader_change", "restart"),
        quick=True,
    ),
    Scenario(
        "C03a",
        "the leader, without claims, is stopped for 2 L",
        stopped_without_claims,
        rules=(4,),
        expects=("leader_change",),
        topology=Topology(variants=LEADERS, slots=8),
        load=Load(per_second=1),
    ),
    Scenario(
        "C03b",
        "a leader that never doubts itself is stopped: the fence refuses its first write",
        stopped_and_blind,
        rules=(3,),
        expects=("leader_change", "fenced_write"),
        topology=BLIND,
        load=Load(per_second=1),
    ),
    Scenario(
        "C03c",
        "the leader, with claims, is stopped for 2 L",
        stopped_with_claims,
        rules=(7, 11),
        expects=("leader_change", "restart", "retried"),
    ),
    Scenario(
        "C04",
        "the leader is stopped between the send of a call and its answer",
        stopped_in_the_middle_of_a_call,
        rules=(1, 3),
        expects=("leader_change",),
        topology=Topology(variants=LEADERS, slots=8),
        load=Load(per_second=0.5, seconds=(0.2, 1)),
    ),
    Scenario(
        "C05",
        "all replicas are killed and start together",
        all_killed,
        rules=(2, 19),
        expects=("leader_change", "restart"),
        load=Load(per_second=1.5, seconds=(0.2, 3), schedules=3),
    ),
    Scenario(
        "C12",
        "the leader is cut off from the database",
        cut_off,
        rules=(4,),
        expects=("leader_change", "unknown_outcome"),
        needs=("cut", "one-way"),
    ),
    Scenario(
        "C13",
        "the leader's replies are lost: it sends, and hears nothing",
        deaf,
        rules=(4,),
        expects=("leader_change", "unknown_outcome"),
        needs=("one-way",),
        bounds=Bounds(leader_gap=R + TAKE_OVER),
    ),
    Scenario(
        "N03",
        "two leaders and no fence (control)",
        two_leaders,
        rules=(3,),
        expects=("leader_change",),
        topology=BLIND,
        load=Load(per_second=0),
        guards_off=("3",),
        reports=("K2",),
    ),
    Scenario(
        "N05",
        "a finish is matched with the current epoch instead of the row's (control)",
        long_work_over_a_take_over,
        rules=(5,),
        expects=("leader_change", "superseded"),
        load=Load(per_second=0),
        guards_off=("5",),
        reports=("K11",),
    ),
)
