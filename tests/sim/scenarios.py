"""Stories with all that chance does not need to find again; the seed still decides the steps and delays.

Some once broke the product. The others, one for each rule, are what that rule stands against: with it they
hold, and without it they must not.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tests.sim.witness import FENCED

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World

LONG: Final[dict[str, Any]] = {"kind": "inner", "seconds": 18.0, "stop": 0.0, "outcome": "done"}
SHORT: Final[dict[str, Any]] = {**LONG, "seconds": 3.0}
STUBBORN: Final[dict[str, Any]] = {**LONG, "stop": 12.0}
AWAY_SECONDS: Final = 14.0


def lost_start(world: "World") -> None:
    """A failover forgets a start and keeps its assignment.

    The worker goes on executing, and names the claim; the row says ASSIGNED under it. When that assignment
    is taken back, D after the failover, the work must have stopped: another worker gets it at once.
    """
    world.load.enqueue("plain", LONG)
    world.after["assign_runs"] = lambda _host: world.nemesis.lag(1.0)


def first_tenure_lost(world: "World") -> None:
    """The standby that is promoted never heard of any tenure; the candidates have."""
    world.load.enqueue("plain", LONG)
    world.nemesis.lag(1.5)
    world.loop.at(1.4, _cut_off_whoever_works, world)


def clock_set_in_quarantine(world: "World") -> None:
    """The promoted server's clock is set forward, over the end of the quarantine.

    A worker that was cut off in that moment executes what the new server takes for never begun.
    """
    failover(world)
    world.loop.at(3.7, world.nemesis.shift, "jump", world.timings.stop_bound + 1)


def failover(world: "World") -> None:
    """An assignment and a start are lost, and their worker is cut off: it stops by itself, within D."""
    world.load.enqueue("plain", LONG)
    world.after["acquire_tenure"] = lambda _host: world.nemesis.lag(1.5)
    world.loop.at(1.4, _cut_off_whoever_works, world)


def late_writes(world: "World") -> None:
    """A leader's assignment is under way while it resigns; its successor does nothing yet."""

    def delay_the_leader() -> None:
        for host in world.hosts:
            if host.leads:
                host.link.late_calls, host.link.delay_seconds = FENCED, 4.0
        world.load.enqueue("plain", SHORT)
        world.after["acquire_tenure"] = _stop_at_once
        world.loop.at(0.3, world.execute, "admin", "SELECT * FROM supervisor.request_resign('sim')")

    def _stop_at_once(host: "Host") -> None:
        host.link.late_calls, host.link.delay_seconds = FENCED, 5.0

    world.loop.at(1.0, delay_the_leader)


def stubborn_work(world: "World") -> None:
    """Cancelled work goes on for long after its worker was told, and another run waits for its place."""
    world.load.enqueue("alone", STUBBORN)
    world.load.enqueue("alone", SHORT)
    world.loop.at(1.0, world.load.cancel, 1)


def clock_set(world: "World") -> None:
    """The database's clock jumps while a worker is cut off for a moment."""
    _three(world, LONG)
    world.loop.at(
        1.5, lambda: world.nemesis.sever("cut", world.nemesis.worker(), 3.0, requests=True, replies=True)
    )
    world.loop.at(1.6, world.nemesis.shift, "jump", 2 * world.timings.stop_bound)


def long_cut(world: "World") -> None:
    """A worker is cut off for so long that its work is given to another."""
    _three(world, LONG)
    away = {"requests": True, "replies": True}
    world.loop.at(1.5, lambda: world.nemesis.sever("exile", world.nemesis.worker(), AWAY_SECONDS, **away))


def long_stop(world: "World") -> None:
    """A worker is stopped for so long that its work is given to another."""
    _three(world, LONG)
    world.loop.at(
        1.5, lambda: world.nemesis.freeze("coma", world.nemesis.worker(), AWAY_SECONDS, loop_only=False)
    )


def change_of_leaders(world: "World") -> None:
    """Nothing but a change of leaders, while work goes on."""
    _three(world, SHORT)
    world.loop.at(1.0, world.execute, "admin", "SELECT * FROM supervisor.request_resign('sim')")


def _three(world: "World", order: dict[str, Any]) -> None:
    """One on each replica."""
    for _ in range(3):
        world.load.enqueue("plain", order)


def _cut_off_whoever_works(world: "World") -> None:
    for host in world.hosts:
        if host.executors:
            world.nemesis.sever("exile", host, 10.0, requests=True, replies=True)


SCENARIOS: Final[Mapping[str, Callable[["World"], None]]] = {
    story.__name__.replace("_", "-"): story
    for story in (
        lost_start, first_tenure_lost, clock_set_in_quarantine, failover, late_writes, stubborn_work,
        clock_set, long_cut, long_stop, change_of_leaders,
    )
}  # fmt: skip
CONTROLS: Final[Mapping[str, str]] = {
    "fence": "late-writes",
    "quiesce": "stubborn-work",
    "two_keys": "clock-set",
    "stop_rule": "long-cut",
    "dead_man": "long-stop",
    "token_row": "change-of-leaders",
    "quarantine": "failover",
}
"""The story in which each rule is missed."""
