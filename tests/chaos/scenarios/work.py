"""What work itself can do to a fleet, and a fleet to work: poison, schedules, rolling restarts, cancels.

Of daylight saving, real time shows what a leader makes up for: schedules whose last look was before the last
changes of the clocks. Clocks that change while it looks cannot be waited for here, nor can instants that were
missed by more than a minute while nobody led: tests/unit/test_schedule.py has both.
"""

import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from supervisor.clock import boottime
from tests.chaos.executions import Execution
from tests.chaos.faults import Cut, Kill, Term
from tests.chaos.load import SCRIPT, Load, command, program
from tests.chaos.scenario import Scenario
from tests.chaos.scenarios.redis import calm
from tests.chaos.scenarios.worker import CALM, work_on
from tests.chaos.topology import Topology
from tests.chaos.world import World
from tests.support.replicas import TAKE_OVER, C, D, H, K, S

ATTEMPTS: Final = 2
# one that is never the leader's, so that what is killed costs no election
ONE_LEADER: Final = {"r1": "leads-only", "r2": "never-leads", "r3": "never-leads"}
LIMIT_SECONDS: Final = 2.0
# a sleep that no other process of the machine is likely to ask for
MARK: Final = "61237"
FIRST: Final = f"bash {SCRIPT} 10 done; "
GREEDY: Final = 'import resource as r; r.setrlimit(r.RLIMIT_AS, (2**27, 2**27)); b"x" * 2**30'
FORKS: Final = "f() { [ $1 -eq 0 ] || { f $(($1 - 1)) & setsid sleep %s & f $(($1 - 1)) & }; sleep %s; }; f 5"
REPLICA: Final = "tests.chaos.recorder"
FATAL: Final = (
    f"p=$PPID; until tr '\\0' ' ' </proc/$p/cmdline | grep -q {REPLICA}; do "
    "read -r _ _ _ p _ </proc/$p/stat; done; kill -KILL $p"
)
# what it does after a sign of life, and how its attempts end
POISON: Final = {
    "segfault": ("kill -SEGV $$", "FAILED", "SIGNAL_SIGSEGV"),
    "greedy": (f"exec {sys.executable} -c '{GREEDY}'", "FAILED", "EXIT_1"),
    "fork-bomb": (FORKS % (MARK, MARK), "TIMED_OUT", "TIMEOUT"),
    "endless": ("while :; do :; done", "TIMED_OUT", "TIMEOUT"),
    "leaves-without-a-word": ("kill -KILL $PPID; exit 0", "FAILED", "STOPPED"),
}
DRAIN_SECONDS: Final = 2.0
# rule 20: the grace, the kill, and the last words
DRAINED_SECONDS: Final = DRAIN_SECONDS + K + 5
ZONES: Final = (
    *("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Auckland", "Africa/Casablanca"),
    *("America/St_Johns", "Asia/Beirut", "Antarctica/Troll"),
)


@dataclass(frozen=True)
class TermThenKill:
    """SIGTERM, and SIGKILL in the middle of the draining; started again at the end."""

    target: str
    seconds: float

    async def start(self, world: World) -> None:
        began = boottime()
        world.members[self.target].signal(signal.SIGTERM)
        await world.passed(began, self.seconds)
        await Kill(self.target).start(world)

    async def stop(self, world: World) -> None:
        await world.start(self.target)


async def poisoned(world: World, chance: random.Random) -> None:
    """Each poison costs its own attempts; good work beside it succeeds at its first."""
    for name, (script, _, _) in POISON.items():
        payload = {"argv": ["bash", "-c", FIRST + script]}
        await world.see.define(name, payload, max_attempts=ATTEMPTS, timeout_seconds=LIMIT_SECONDS)
    await calm(world)
    epoch = await world.see.epoch()
    roots: dict[str, int] = {}
    good: list[int] = []
    for name in chance.sample(sorted(POISON), len(POISON)):
        roots[name] = (await world.see.trigger(name))[0]
        good += await world.see.trigger("load", 2, command(chance.uniform(0.2, 1)))
        await world.passed(boottime(), chance.uniform(0, 0.5))

    async def over() -> bool:
        rows = [await world.see.attempts(root) for root in roots.values()]
        return all(len(row) == ATTEMPTS and row[-1]["finished_at"] for row in rows)

    await world.see.until(over, within=30, what="the last attempt of every poison")
    for name, root in roots.items():
        ends = [(row["state"], row["error_code"]) for row in await world.see.attempts(root)]
        assert ends == [POISON[name][1:]] * ATTEMPTS, f"{name}: {ends}"
        assert len([one for one in world.executions() if one.root == root]) <= ATTEMPTS, name

    async def succeeded() -> bool:
        return await world.see.succeeded(good)

    await world.see.until(succeeded, within=15, what="the good ones")
    assert {row["attempt"] for row in await world.see.last(good)} == {1}, "good work was done again"
    assert all(one.alive for one in world.members.values()), "a replica died of it"
    assert await world.see.epoch() == epoch, "the leader changed"
    assert not left_over(), f"children outlived their run: {left_over()}"


async def kills_its_replica(world: World, chance: random.Random) -> None:
    """It takes as many replicas with it as it has attempts, and no more."""
    await world.see.define("fatal", {"argv": ["bash", "-c", FIRST + FATAL]}, max_attempts=ATTEMPTS)
    (root,) = await world.see.trigger("fatal")
    deaths = 0
    began = boottime()

    async def death() -> str | None:
        return next((host for host, one in world.members.items() if not one.alive), None)

    async def over() -> bool:
        rows = await world.see.attempts(root)
        return len(rows) == ATTEMPTS and rows[-1]["finished_at"] is not None

    for _ in range(ATTEMPTS):
        host = await world.see.until(death, within=D + C + 10, what="a replica to be killed by its work")
        deaths += 1
        await world.passed(boottime(), chance.uniform(0, 2))
        await world.start(host)
    await world.see.until(over, within=D + C + 10, what="the last attempt to be given up")
    world.figure("given_up", boottime() - began)
    await world.passed(boottime(), 2)
    assert await death() is None, "it was executed once more than it may"
    assert len([one for one in world.executions() if one.root == root]) == deaths == ATTEMPTS


async def elections_at_instants(world: World, chance: random.Random) -> None:
    """The leader is asked to leave, and is killed, when schedules fire; and while the past is made up for."""
    await scheduled(world, "each-second", "* * * * * *", missed="all")
    await scheduled(world, "half-an-hour-off", "*/2 * * * * *", timezone="Asia/Kolkata", missed="latest")
    await scheduled(world, "never-late", "*/3 * * * * *", timezone="Africa/Monrovia", missed="skip")
    made_up = [await past_change(world, number, zone) for number, zone in enumerate(chance.sample(ZONES, 4))]
    began = time.time()
    for turn in range(6):
        epoch = await world.see.epoch()
        await next_second(world, chance)
        if turn == 2:
            wind_back = """UPDATE supervisor.job_definition SET fired_until = $2, updated_at = $2,
                           next_fire_at = '-infinity' WHERE name = $1"""
            for name, since in made_up:
                await world.see.rows(wind_back, name, since)
        if turn == 4:
            await world.begin(Kill((await world.leader()).host))
        else:
            await world.see.rows("SELECT FROM supervisor.request_resign('chaos')")
        await world.see.led_after(epoch, TAKE_OVER)
    await world.passed(boottime(), 2)
    await switched_off(world)
    world.figure("instants", await world.see.value("SELECT count(scheduled_for) FROM supervisor.job_run"))
    each = """SELECT count(*) FROM supervisor.job_run r JOIN supervisor.job_definition d
              ON d.id = r.job_definition_id WHERE d.name = 'each-second'"""
    # the last second or two may not have been looked at
    looked_at = time.time() - began - 4 * world.see.crowding
    assert await world.see.value(each) >= looked_at, "instants are missing"
    unmade = "SELECT name FROM supervisor.job_definition WHERE name ~ '^past' AND fired_until < $1"
    assert not await world.see.rows(unmade, datetime.now(UTC) - timedelta(hours=1)), "the past was left"
    late = """SELECT extract(epoch FROM max(created_at - scheduled_for))::float8 FROM supervisor.job_run
              WHERE created_at - scheduled_for < interval '1 hour'"""
    world.figure("schedule_late", await world.see.value(late))


async def rolling_restart(world: World, chance: random.Random) -> None:
    """Each in turn: not ready, the grace, a recorded stop, the end; one is killed in the middle of it."""
    hosts = chance.sample(sorted(world.members), len(world.members))
    killed = chance.choice(hosts)
    for host in hosts:
        await work_on(world, host, chance.uniform(4, 6))
        await world.passed(boottime(), chance.uniform(0, 0.5))
        if host == killed:
            async with world.during(TermThenKill(host, chance.uniform(0.2, DRAIN_SECONDS))):
                pass
            continue
        member = world.members[host]
        assert member.process is not None
        began = boottime()
        async with world.during(Term(host)):
            await left(world, member.worker_id)
            world.figure("drained_after", boottime() - began)
            assert await member.process.wait() == 0, f"{host} did not leave in order"
            world.figure("ended_after", boottime() - began)
    others = "SELECT id, error_code FROM supervisor.job_run WHERE state = 'FAILED' AND error_code <> $1"
    rows = await world.see.rows(others, "DRAINED")
    assert not rows, f"a restart made runs fail: {rows[:5]}"


async def left(world: World, worker_id: str) -> None:
    """It has said that it is gone, and holds nothing."""
    state = "SELECT state FROM supervisor.worker WHERE worker_id = $1"

    async def gone() -> bool:
        return bool(await world.see.value(state, worker_id) == "gone")

    await world.see.until(gone, within=DRAINED_SECONDS, what=f"{worker_id} to be drained")
    assert not await world.see.on(worker_id), "it left and kept a run"


async def next_of_the_same_key(world: World, chance: random.Random) -> None:
    """A healthy run is cancelled, is over its time, and is cancelled while cut off; the next one waits."""
    await world.see.define("single", **program(1), concurrency=1, max_attempts=1)
    await world.see.define("single-short", **program(1), concurrency=1, max_attempts=1, timeout_seconds=1.5)
    for how in chance.sample(("cancel", "over-time", "cut"), 3):
        job = "single-short" if how == "over-time" else "single"
        (first,) = await world.see.trigger(job, 1, command(30, "stubborn"))
        one = await begun(world, first, 8)
        (second,) = await world.see.trigger(job, 1, command(0.2))
        await world.passed(boottime(), chance.uniform(0.1, 0.6))
        began = boottime()
        if how != "over-time":
            await world.see.rows("SELECT FROM supervisor.request_cancel('chaos', $1)", first)
        if how == "cut":
            async with world.during(Cut(one.host, "pg1")):
                follower = await begun(world, second, D + C + 8)
            assert follower.first - began > S * world.stretch, (
                "the next began before the first had certainly stopped"
            )
        else:
            follower = await begun(world, second, LIMIT_SECONDS + 2 * H + K + 4)
        world.figure(f"next_after_{how.replace('-', '_')}", follower.first - began)
        first_one = next(entry for entry in world.executions() if entry.run == first)
        assert first_one.last < follower.first, f"{how}: the next run began while the first was executing"
        assert not first_one.alive(), f"{how}: the first run still lives"
        (row,) = await world.see.last([first])
        ends = {"over-time": ("TIMED_OUT", "TIMEOUT")}.get(how, ("CANCELED", row["error_code"]))
        assert (row["state"], row["error_code"]) == ends, f"{how}: {row['state']} {row['error_code']}"


async def begun(world: World, run: int, within: float) -> Execution:
    async def executing() -> Execution | None:
        return next((one for one in world.executions() if one.run == run), None)

    found: Execution = await world.see.until(executing, within=within, what=f"run {run} to be executed")
    return found


def left_over() -> list[str]:
    """Processes that carry the mark of our fork bomb."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", MARK.encode()]:
            found.append(path.parent.name)
    return found


async def scheduled(world: World, name: str, cron: str, **spec: Any) -> None:
    await world.see.define(name, **program(0.05), max_attempts=3, cron=cron, **{"timezone": "UTC", **spec})


async def switched_off(world: World) -> None:
    """What they say of the past stays, since when and until when; what they fired is still due.

    The watermark is moved a little, so that a leader that has just looked does not fire once more.
    """
    await world.see.rows(
        """UPDATE supervisor.job_definition SET next_fire_at = 'infinity',
               fired_until = fired_until + interval '1 microsecond' WHERE cron IS NOT NULL"""
    )


async def past_change(world: World, number: int, zone: str) -> tuple[str, datetime]:
    """A schedule around the last change of the clocks of a zone, and the day before it."""
    change = last_change(zone)
    local = change.astimezone(ZoneInfo(zone))
    days = sorted({(local + timedelta(days=off)).day for off in (-1, 0, 1)})
    months = sorted({(local + timedelta(days=off)).month for off in (-1, 0, 1)})
    hours = sorted({hour % 24 for hour in range(local.hour - 2, local.hour + 2)})
    fields = ["15,45", *(",".join(map(str, numbers)) for numbers in (hours, days, months)), "*"]
    name = f"past-{number}"
    await scheduled(world, name, " ".join(fields), timezone=zone, missed="all", missed_limit=200)
    return name, change - timedelta(days=2)


def last_change(zone: str) -> datetime:
    """The last hour at which the zone's offset had just changed."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    return next(after for after in hours_before(now) if changed(zone, after))


def hours_before(now: datetime) -> Iterator[datetime]:
    yield from (now - timedelta(hours=hours) for hours in range(24, 24 * 400))


def changed(zone: str, after: datetime) -> bool:
    before = after - timedelta(hours=1)
    return after.astimezone(ZoneInfo(zone)).utcoffset() != before.astimezone(ZoneInfo(zone)).utcoffset()


async def next_second(world: World, chance: random.Random) -> None:
    """The next full second of the wall clock, give or take a tenth."""
    now = time.time()
    await world.passed(boottime(), 1 - now % 1 + chance.uniform(-0.1, 0.1))


SCENARIOS: Final = (
    Scenario(
        "C34a",
        "poison: a crash, a hunger for memory, a fork bomb, no end, an end without a word",
        poisoned,
        rules=(10, 11),
        expects=("failed", "timed_out", "retried"),
        load=Load(per_second=1, seconds=(0.2, 1), failing=0, poison=0),
    ),
    Scenario(
        "C34b",
        "poison: a command that kills its replica",
        kills_its_replica,
        rules=(9, 11),
        expects=("death", "timed_out", "retried"),
        topology=Topology(variants=ONE_LEADER),
        load=CALM,
    ),
    Scenario(
        "C35",
        "elections exactly when schedules fire",
        elections_at_instants,
        rules=(2, 3, 19),
        expects=("leader_change", "resigned", "restart", "scheduled"),
        load=Load(per_second=0),
    ),
    Scenario(
        "C36",
        "a rolling restart under load, one of them killed while it drains",
        rolling_restart,
        rules=(20,),
        expects=("drained", "restart", "leader_change", "retried"),
        topology=Topology(env={"TENURE_DRAIN_SECONDS": f"{DRAIN_SECONDS:g}"}),
        load=Load(per_second=2, seconds=(0.2, 3), failing=0, poison=0),
    ),
    Scenario(
        "C37",
        "a healthy run is cancelled or over its time, with the next of its job queued",
        next_of_the_same_key,
        rules=(10, 24),
        expects=("canceled", "timed_out", "fault"),
        topology=Topology(variants=ONE_LEADER),
        needs=("cut",),
        load=CALM,
    ),
)
