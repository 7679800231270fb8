"""The database crashes, is away or ends sessions: what it acknowledged stays, nothing is done twice."""

import random
from collections.abc import Awaitable, Callable
from typing import Final

from supervisor.clock import boottime
from tests.chaos.faults import Crash, Kill, Stop, TerminateSessions
from tests.chaos.judge import calls
from tests.chaos.load import Load, command
from tests.chaos.observer import ENDED
from tests.chaos.scenario import Inconclusive, Scenario
from tests.chaos.world import World
from tests.support.replicas import TAKE_OVER, C, D, K, S
from tests.support.slowness import Allowance

OUTCOMES: Final = "SELECT id, state, claim_id, finished_at FROM supervisor.job_run WHERE state = ANY ($1)"
# a timer, a signal and the writing of a line
EPSILON: Final = 0.5
# of one replica while the database is away: its beats, its renewals, its looks for work, its completions
CALLS_PER_SECOND: Final = 30.0
SESSIONS_PER_REPLICA: Final = 30
LONG: Final = S + K + 4
WARM_SECONDS: Final = 30.0


async def crashed(world: World, chance: random.Random) -> None:
    for _ in range(2):
        await world.passed(boottime(), chance.uniform(2, 4))
        before = {row["id"]: row for row in await world.see.rows(OUTCOMES, list(ENDED))}
        async with world.during(Crash("pg1", power=chance.random() < 0.5)):
            await world.passed(boottime(), chance.uniform(0, 1))
        up = boottime()
        now = {row["id"]: row for row in await world.see.rows(OUTCOMES, list(ENDED))}
        lost = [row for run, row in before.items() if now.get(run) != row]
        assert not lost, f"acknowledged outcomes were lost: {lost}"
        await world.leader(within=TAKE_OVER)
        world.figure("leader_gap", boottime() - up)


async def away_for_2d(world: World, chance: random.Random) -> None:
    """Everybody stops by itself; afterwards nothing is taken from the dead one before D was watched."""
    await warmed_up(world)
    leader = await world.leader()
    victim = world.others(leader)[0]
    await world.see.trigger("load", 2 * world.topology.replicas, command(LONG))

    async def busy() -> bool:
        begun = {one.host for one in world.executions() if not one.ended}
        return begun >= set(world.members) and bool(await world.see.on(victim.worker_id))

    await prepared(world, busy, within=10, what="work on every replica")
    await world.passed(boottime(), chance.uniform(0, 1))
    held = await world.see.on(victim.worker_id)
    down = boottime()
    async with world.during(chance.choice((Crash("pg1"), Stop("pg1")))):
        # its claims are left for the next leader to find
        await world.begin(Kill(victim.host))
        await world.passed(down, S + K + EPSILON)
        alive = [one for one in world.executions() if one.alive()]
        assert not alive, f"still executing {boottime() - down:.1f} s after the last contact: {alive}"
        await world.passed(down, 2 * D)
    up = boottime()
    world.figure("calls_per_second", storm(world, down, up))
    assert world.figures["calls_per_second"] <= CALLS_PER_SECOND, "too many calls to a database that is away"
    await world.leader(within=TAKE_OVER)
    world.figure("leader_gap", boottime() - up)
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tenure/%'"
    world.figure("sessions", await world.see.value(sessions))
    assert world.figures["sessions"] <= SESSIONS_PER_REPLICA * len(world.members), "too many sessions"
    expired = """SELECT extract(epoch FROM clock_timestamp() - min(at))::float8 AS ago, count(*)
                 FROM supervisor.job_run_history
                 WHERE run_id = ANY ($1) AND to_state = 'TIMED_OUT' AND actor = 'leader'"""

    async def taken() -> float | None:
        (row,) = await world.see.rows(expired, held)
        return boottime() - row["ago"] if row["count"] == len(held) else None

    first: float = await world.see.until(
        taken, within=TAKE_OVER + D + C + 4, what="the dead worker's attempts to expire"
    )
    # a replica may be there before we are: nobody has watched longer than since the first answer
    watched = first - min(
        call["t"]
        for call in calls(world.history)
        if call["kind"] == "ok" and call["t"] > down + D * world.stretch
    )
    world.figure("watched_before_expiry", watched)
    assert watched >= D * world.stretch, f"an attempt was taken {watched:.2f} s after the database was back"


async def sessions_ended(world: World, chance: random.Random) -> None:
    """Two sessions every fifth of a second: it costs repeated calls, and no attempt."""
    async with world.during(TerminateSessions(sessions=chance.choice((1, 2)))):
        await world.passed(boottime(), chance.uniform(10, 12))
    lost = "SELECT run_id, reason FROM supervisor.job_run_history WHERE to_state = 'TIMED_OUT'"
    rows = await world.see.rows(lost)
    assert not rows, f"ended sessions cost attempts: {rows}"


async def warmed_up(world: World) -> None:
    """Every replica has its sessions and has done some work, and nothing is left of it."""
    allowance = Allowance(WARM_SECONDS * world.stretch)
    runs: list[int] = []

    async def done() -> bool:
        return await world.see.succeeded(runs)

    while not {one.host for one in world.executions()} >= set(world.members):
        if allowance.used_up():
            raise Inconclusive(f"not every replica did some work within {allowance}")
        runs = await world.see.trigger("load", 2 * world.topology.replicas, command(0.2))
        await prepared(world, done, within=WARM_SECONDS, what="the first work to end")


async def prepared(
    world: World,
    condition: Callable[[], Awaitable[bool]],
    *,
    within: float,
    what: str,
    interval: float = 0.05,
) -> None:
    """What a scenario needs before its fault: without it nothing is shown, and nothing is broken."""
    try:
        await world.see.until(condition, within=within, what=what, interval=interval)
    except AssertionError as error:
        raise Inconclusive(str(error)) from None


def storm(world: World, since: float, until: float) -> float:
    """The calls a second of whoever sent most between two instants."""
    sent: dict[str, int] = {}
    for call in calls(world.history):
        if call["kind"] == "invoke" and since < call["t"] < until:
            sent[call["worker"]] = sent.get(call["worker"], 0) + 1
    return max(sent.values(), default=0) / (until - since)


SCENARIOS: Final = (
    Scenario(
        "C19",
        "the database crashes under load, twice",
        crashed,
        rules=(12,),
        expects=("restart", "unknown_outcome"),
        load=Load(per_second=3, seconds=(0.2, 2)),
        quick=True,
    ),
    Scenario(
        "C20",
        "the database is away for 2 D: workers stop by themselves, and expiry waits for a new watch",
        away_for_2d,
        rules=(7, 9, 12),
        expects=("restart", "unknown_outcome", "timed_out", "retried"),
        load=Load(per_second=0.5, seconds=(0.2, 1), failing=0, poison=0),
    ),
    Scenario(
        "C21",
        "sessions are ended at random, again and again",
        sessions_ended,
        rules=(12,),
        expects=("fault", "unknown_outcome"),
        load=Load(per_second=3, seconds=(0.2, 3), poison=0),
    ),
)
