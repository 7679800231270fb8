"""What others' users have reported of systems like this one, brought about here by our own means.

A blocked event loop that is read as a death is C09 (worker.py): beats have a thread of their own there.
"""

import random
from dataclasses import dataclass, field
from typing import Final

import asyncpg

from supervisor.clock import boottime
from tests.chaos.faults import Cut, Freeze, Kill
from tests.chaos.judge import calls
from tests.chaos.load import Load, command
from tests.chaos.scenario import Bounds, Scenario
from tests.chaos.scenarios.leader import BLIND
from tests.chaos.scenarios.redis import calm
from tests.chaos.scenarios.work import next_second, scheduled, switched_off
from tests.chaos.scenarios.worker import CALM, victim_with_work
from tests.chaos.topology import Topology
from tests.chaos.world import World
from tests.support.replicas import TAKE_OVER, C, D, H, L, R, S

# a call on its way when the trust ended, and a busy machine
EPSILON: Final = 0.3
MANY: Final = 500
MANY_SLOTS: Final = Topology(
    variants={"r1": "leads-only", "r2": "leads-only", "r3": "never-leads"}, slots=MANY
)
# as the defaults have it: D is as long as two leases
SHORT_LEASE: Final = 4.0
LONG_BOUND: Final = 2 * SHORT_LEASE + 0.5
LIKE_DEFAULTS: Final = {
    "TENURE_LEADER_LEASE_SECONDS": f"{SHORT_LEASE:g}",
    "TENURE_RENEW_DEADLINE_SECONDS": "1.9",
    "TENURE_STOP_BOUND_SECONDS": f"{LONG_BOUND:g}",
}
# a leader may give up in the middle of it; the next one has to watch for D again
RESCUED_SECONDS: Final = 3 * SHORT_LEASE + LONG_BOUND + C + 6
CALL_SECONDS: Final = 6.0
LOCKED: Final = ("supervisor.job_run", "supervisor.worker", "supervisor.leader_lease", "scm.sync_runs")
DOMAIN_TABLES: Final = "scm.sync_runs, dedup.jobs, dedup.library_files, dedup.thumbnails"
# five times, each until lock_timeout
REPEATED_SECONDS: Final = 5 * 2.0
# of a leader: its calls that change something under its epoch
WRITES: Final = frozenset(
    {"assign_runs", "orphan_runs", "confirm_runs", "expire_runs", "time_out_runs", "cancel_runs"}
    | {"exhaust_runs", "make_next_attempts", "process_events", "fire_schedules"}
)
RENEWED: Final = "here := supervisor.server_identity();"
ERROR: Final = "RAISE EXCEPTION 'not today' USING ERRCODE = '08006'"


@dataclass(frozen=True)
class NoRenewal:
    """Every renewal of one leader ends in an error, or in an answer that it does not heed (`silent`)."""

    target: str
    silent: bool = False
    _texts: list[str] = field(default_factory=list)

    async def start(self, world: World) -> None:
        text = await world.see.value("SELECT pg_get_functiondef('supervisor.renew'::regproc)")
        assert text.count(RENEWED) == 1, "supervisor.renew has changed"
        self._texts.append(text)
        worker, instead = world.members[self.target].worker_id, "RETURN" if self.silent else ERROR
        refused = f"IF p_worker = '{worker}' THEN {instead}; END IF; {RENEWED}"
        await world.see.rows(text.replace(RENEWED, refused))

    async def stop(self, world: World) -> None:
        await world.see.rows(self._texts.pop())


@dataclass(frozen=True)
class Locked:
    """Somebody's transaction has locked a table and stays open: what needs it waits, and is cut off."""

    target: str
    _holding: list[asyncpg.Connection] = field(default_factory=list)

    async def start(self, world: World) -> None:
        connection = await world.see.connection()
        self._holding.append(connection)
        await connection.execute("BEGIN")
        await connection.execute(f"LOCK TABLE {self.target} IN ACCESS EXCLUSIVE MODE")

    async def stop(self, _world: World) -> None:
        connection = self._holding.pop()
        await connection.execute("ROLLBACK")
        await connection.close()


async def renewals_fail(world: World, chance: random.Random) -> None:
    """Errors of the renewal alone: everything else goes on, and the leader stops all the same, at R."""
    leader, epoch = await world.leader(), await world.see.epoch()

    def renewals() -> list[float]:
        """Of this leader, as answered: when they were sent."""
        mine = [call for call in calls(world.history) if call["worker"] == leader.worker_id]
        answered = {call["n"] for call in mine if call["kind"] == "ok" and call["f"] == "renew_tenure"}
        return [call["t"] for call in mine if call["kind"] == "invoke" and call["n"] in answered]

    async def renewed() -> bool:
        return bool(renewals())

    await world.see.until(renewed, within=R, what="the leader's first renewal")
    await world.passed(boottime(), chance.uniform(0, 1))
    began = boottime()
    async with world.during(NoRenewal(leader.host)):
        await world.see.led_after(epoch, TAKE_OVER)
        world.figure("leader_gap", boottime() - began)
        await world.passed(boottime(), chance.uniform(1, 2))
    sent = [
        call
        for call in calls(world.history)
        if call["worker"] == leader.worker_id
        and call["kind"] == "invoke"
        and call["args"].get("epoch") == epoch
    ]
    over = max(renewals()) + (R + EPSILON) * world.stretch
    writes = [call for call in sent if call["f"] in WRITES and call["t"] > over]
    assert not writes, f"it went on as a leader after its trust was over: {writes[:3]}"
    assert any(call["f"] in WRITES for call in sent), "it never acted as a leader"


async def renewals_unheeded(world: World, chance: random.Random) -> None:
    """The bug itself: a leader that swallows the end of its lease and goes on. The fence is left."""
    leader, epoch = await world.leader(), await world.see.epoch()
    await world.passed(boottime(), chance.uniform(0, 1))
    async with world.during(NoRenewal(leader.host, silent=True)):
        await world.see.led_after(epoch, TAKE_OVER)
        runs = await world.see.trigger("load", 4, command(0.3))

        async def refused() -> bool:
            return any(
                call["worker"] == leader.worker_id and call.get("sqlstate") == "TN001"
                for call in calls(world.history)
            )

        async def succeeded() -> bool:
            return await world.see.succeeded(runs)

        await world.see.until(refused, within=5, what="its write to be refused")
        await world.see.until(succeeded, within=10, what="work under the new leader")


async def late_completion(world: World, chance: random.Random) -> None:
    """The first attempt ends well while its worker is cut off, and says so while the second is executing."""
    first_seconds, second_seconds = S - 2 * H, D + 2
    victim = world.others(await world.leader())[0]
    roots = await world.see.trigger(
        "load", 2 * world.topology.replicas, command(first_seconds, later=second_seconds)
    )

    async def mine() -> list[int]:
        held = set(await world.see.on(victim.worker_id)) & set(roots)
        return [one.root for one in world.executions() if one.run in held]

    lost: list[int] = await world.see.until(mine, within=8, what="work on the one to be cut off")
    await world.passed(boottime(), chance.uniform(0, 0.5))
    async with world.during(Cut(victim.host, "pg1", chance.choice(("both", "requests")))):
        began = boottime()

        async def again() -> bool:
            return {one.root for one in world.executions() if one.attempt > 1} >= set(lost)

        await world.see.until(again, within=D + C + 6, what="the second attempts to execute")
        world.figure("rerun", boottime() - began)
        await world.passed(boottime(), chance.uniform(0, 1))
    late = "SELECT run_id, state FROM supervisor.late_finish WHERE run_id = ANY ($1)"

    async def told() -> bool:
        return {row["run_id"] for row in await world.see.rows(late, lost)} >= set(lost)

    await world.see.until(told, within=5, what="the completions to arrive, late")
    states = {row["state"] for row in await world.see.rows(late, lost)}
    assert states == {"SUCCEEDED"}, f"nothing ended well while it was cut off: {states}"
    rows = await world.see.last(lost)
    assert {(row["state"], row["attempt"]) for row in rows} == {("RUNNING", 2)}, f"closed: {rows}"

    async def succeeded() -> bool:
        return await world.see.succeeded(roots)

    await world.see.until(succeeded, within=second_seconds + 6, what="the second attempts to succeed")


async def events_stall(world: World, chance: random.Random) -> None:
    """One duty of the leader waits for ever: the others go on, and the leader gives up in the end."""
    await scheduled(world, "each-second", "* * * * * *", missed="all")
    await calm(world)
    epoch = await world.see.epoch()
    await world.passed(boottime(), chance.uniform(0, 1))
    began = boottime()
    async with world.during(Locked("supervisor.event")):
        await world.passed(began, 2 * H)
        runs = await world.see.trigger("load", 4, command(0.3))

        async def succeeded() -> bool:
            return await world.see.succeeded(runs)

        await world.see.until(succeeded, within=5, what="work while events stall")
        world.figure("worked_after", boottime() - began)
        await world.see.led_after(epoch, 2 * L + CALL_SECONDS + TAKE_OVER)
        world.figure("resigned_after", boottime() - began)
        await world.passed(boottime(), chance.uniform(1, 2))
    reason = "SELECT reason FROM supervisor.tenure_log WHERE what = 'RESIGNED' AND epoch = $1"
    assert await world.see.value(reason, epoch) == "NO_PROGRESS"
    late = """SELECT extract(epoch FROM max(created_at - scheduled_for))::float8 FROM supervisor.job_run"""
    world.figure("schedule_late", await world.see.value(late))
    await switched_off(world)
    assert world.figures["schedule_late"] < CALL_SECONDS / 2 * world.see.crowding, (
        "schedules waited for the events"
    )


async def domains_stall(world: World, chance: random.Random) -> None:
    """Every duty of two domains waits: the leader goes on leading, renewing and giving out work."""
    await calm(world)
    await world.passed(boottime(), chance.uniform(0, 1))
    epoch = await world.see.epoch()
    began = boottime()
    async with world.during(Locked(DOMAIN_TABLES)):
        await world.passed(began, R / 2)
        runs = await world.see.trigger("load", 4, command(0.3))

        async def succeeded() -> bool:
            return await world.see.succeeded(runs)

        await world.see.until(succeeded, within=5, what="work while domains' duties stall")
        world.figure("worked_after", boottime() - began)
        await world.passed(began, chance.uniform(2.5 * R, 3 * R))
    assert await world.see.epoch() == epoch, "the leader changed: it could not renew beside its duties"


async def rescuer_stalls(world: World, chance: random.Random) -> None:
    """A duty never comes through, under any leader; a dead worker's runs are done again all the same."""
    async with world.during(Locked("scm.sync_runs")):
        began = boottime()
        await world.passed(began, chance.uniform(0, 3))
        victim, runs = await victim_with_work(world, 4)
        roots = {one.root for one in world.executions() if one.run in runs}
        killed = boottime()
        await world.begin(Kill(victim.host))

        async def again() -> bool:
            return {one.root for one in world.executions() if one.attempt > 1} >= roots

        await world.see.until(again, within=RESCUED_SECONDS, what="the next attempts")
        world.figure("rerun", boottime() - killed)


async def table_locked(world: World, chance: random.Random) -> None:
    """As by a migration that waits: longer than calls are repeated. Nobody ends for it, and work goes on."""
    await world.see.trigger("load", 3, command(2))
    await world.passed(boottime(), chance.uniform(0, 1))
    began = boottime()
    async with world.during(Locked(chance.choice(LOCKED))):
        await world.passed(began, REPEATED_SECONDS + chance.uniform(2, 4))
    dead = [host for host, one in world.members.items() if not one.alive]
    assert not dead, f"{', '.join(dead)} ended because of a lock"
    await world.leader(within=TAKE_OVER)
    runs = await world.see.trigger("load", 3, command(0.2))

    async def succeeded() -> bool:
        return await world.see.succeeded(runs)

    await world.see.until(succeeded, within=TAKE_OVER, what="work after the lock")


async def fired_by_three(world: World, chance: random.Random) -> None:
    """Leaders that never doubt themselves, stopped and woken when schedules fire: each instant once."""
    for number in range(3):
        await scheduled(world, f"each-second-{number}", "* * * * * *", missed="all")
    for _ in range(2):
        epoch = await world.see.epoch()
        leader = await world.leader()
        await next_second(world, chance)
        async with world.during(Freeze(leader.host)):
            await world.see.led_after(epoch, TAKE_OVER)
            await next_second(world, chance)
        await world.passed(boottime(), chance.uniform(1, 2))
    await switched_off(world)
    fired = """SELECT count(*) AS total, count(DISTINCT (job_definition_id, scheduled_for)) AS instants
               FROM supervisor.job_run WHERE scheduled_for IS NOT NULL AND retry_of_id IS NULL"""
    (row,) = await world.see.rows(fired)
    total, distinct = row["total"], row["instants"]
    world.figure("instants", total)
    assert total == distinct, f"{total} runs for {distinct} instants"


async def shown(world: World) -> None:
    """One run that leaves signs, for the checks that look at these."""
    runs = await world.see.trigger("load", 1, command(0.2))

    async def succeeded() -> bool:
        return await world.see.succeeded(runs)

    await world.see.until(succeeded, within=10, what="a first run")


async def many_running(world: World, chance: random.Random) -> None:
    """Hundreds of runs are RUNNING on a replica that is killed: not one of them stays so."""
    (host,) = [host for host, one in world.members.items() if one.variant == "never-leads"]
    worker = world.members[host].worker_id
    await shown(world)
    await world.see.define("many", {"argv": ["sleep", "600"]}, max_attempts=1)
    roots = await world.see.trigger("many", MANY)

    async def running() -> bool:
        return len(await world.see.on(worker)) == MANY

    async def ended() -> bool:
        return not await world.see.on(worker)

    await world.see.until(running, within=40, what=f"{MANY} runs on one replica")
    await world.passed(boottime(), chance.uniform(0, 1))
    began = boottime()
    async with world.during(Kill(host)):
        await world.see.until(ended, within=D + C + 10, what="none to be left RUNNING")
    world.figure("ended_after", boottime() - began)
    assert await world.see.states(roots) == {"TIMED_OUT": MANY}


async def burst(world: World, _chance: random.Random) -> None:
    """A replica with many slots is given many runs at once: it takes its time, and beats meanwhile."""
    (host,) = [host for host, one in world.members.items() if one.variant == "never-leads"]
    await shown(world)
    await world.see.define("many", {"argv": ["true"]}, max_attempts=3)
    began = boottime()
    runs = await world.see.trigger("many", MANY)

    async def ended() -> bool:
        return not await world.see.open_work()

    await world.see.until(ended, within=60, what=f"{MANY} runs to end")
    world.figure("ended_after", boottime() - began)
    assert world.members[host].alive, "it was killed by its own timer"
    assert await world.see.states(runs) == {"SUCCEEDED": MANY}
    attempts = {row["attempt"] for row in await world.see.last(runs)}
    assert attempts == {1}, f"starting so many at once cost attempts: {attempts}"


SCENARIOS: Final = (
    Scenario(
        "P1a",
        "a leader's renewals fail and nothing else does: it stops at R",
        renewals_fail,
        rules=(4,),
        expects=("fault", "leader_change", "unknown_outcome"),
        load=Load(per_second=2, seconds=(0.2, 1)),
    ),
    Scenario(
        "P1b",
        "a leader swallows the end of its lease: the fence refuses what it writes",
        renewals_unheeded,
        rules=(3,),
        expects=("fault", "leader_change", "fenced_write"),
        topology=BLIND,
        load=Load(per_second=2, seconds=(0.2, 1)),
    ),
    Scenario(
        "P2",
        "a completion comes while the next attempt is executing, and does not close it",
        late_completion,
        rules=(5, 13),
        expects=("timed_out", "retried", "late_finish", "superseded"),
        needs=("cut", "one-way"),
        load=Load(per_second=0),
    ),
    Scenario(
        "P4a",
        "one duty of the leader stalls: the others go on, and the leader resigns",
        events_stall,
        rules=(23,),
        expects=("fault", "leader_change", "resigned", "scheduled"),
        load=CALM,
    ),
    Scenario(
        "P4c",
        "every duty of two domains stalls: the leader renews and gives out work",
        domains_stall,
        rules=(4, 23),
        expects=("fault",),
        load=CALM,
    ),
    Scenario(
        "P4b",
        "one duty stalls under every leader: dead workers' runs are rescued all the same",
        rescuer_stalls,
        rules=(9, 23),
        expects=("fault", "death", "timed_out", "retried"),
        topology=Topology(env=LIKE_DEFAULTS),
        load=CALM,
        bounds=Bounds(terminal=LONG_BOUND + C + 16),
    ),
    Scenario(
        "P7",
        "a table is locked for longer than calls are repeated",
        table_locked,
        rules=(1, 12, 23),
        expects=("fault", "unknown_outcome"),
        load=CALM,
    ),
    Scenario(
        "P5",
        "schedules around elections with leaders that never doubt themselves",
        fired_by_three,
        rules=(3, 19),
        expects=("leader_change", "fenced_write", "scheduled"),
        topology=BLIND,
        load=Load(per_second=0),
    ),
    Scenario(
        "P6",
        f"{MANY} runs are RUNNING on a replica that is killed",
        many_running,
        rules=(8, 9, 10),
        expects=("death", "confirming", "timed_out"),
        topology=MANY_SLOTS,
        load=Load(per_second=0),
    ),
    Scenario(
        "P8",
        f"a replica is given {MANY} runs at once",
        burst,
        rules=(7, 11, 21),
        topology=MANY_SLOTS,
        load=Load(per_second=0),
    ),
)
