"""What a scenario is.

    async def kill_the_leader(world: World, chance: random.Random) -> None:
        epoch, leader = await world.see.epoch(), await world.leader()
        async with world.during(Kill(leader.host)):
            await world.see.led_after(epoch, TAKE_OVER)

    SCENARIOS = (
        Scenario("C01", "the leader is killed", kill_the_leader, rules=(4,), expects=("leader_change",)),
    )

`play` does the faults and asserts what is particular to them; a failed assertion breaks the scenario. What
holds in every history is checked over the recorded directory afterwards, whatever `play` asserted. All
randomness comes from `chance`, so that a seed replays. `expects` names what must have happened for the
verdict to mean anything (supervisor.verify.vacuity); without it the scenario is INCONCLUSIVE. `needs` names
what the layer must be able to do (layer.py), `rules` those of the design that it leans on.

A negative control has `reports`, and usually `guards_off` (guards.py): the check must find something whose
text begins with one of these, else the control, and so the check, is BROKEN.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.load import Load
from tests.chaos.topology import Topology
from tests.chaos.world import World
from tests.support.replicas import TAKE_OVER, C, D

LONGEST_RUN: Final = 6.0


class Inconclusive(Exception):
    """What was to be shown could not be, and not by a fault of what is tested: the machine was too slow."""


@dataclass(frozen=True)
class Bounds:
    """leader_gap: until somebody leads again; terminal: until every run has ended, after the heal."""

    leader_gap: float = TAKE_OVER
    terminal: float = D + C + 10 + LONGEST_RUN


@dataclass(frozen=True)
class Scenario:
    id: str
    title: str
    play: Callable[[World, random.Random], Awaitable[None]]
    rules: tuple[int, ...] = ()
    expects: tuple[str, ...] = ()
    topology: Topology = field(default_factory=Topology)
    load: Load = field(default_factory=Load)
    needs: tuple[str, ...] = ()
    bounds: Bounds = field(default_factory=Bounds)
    guards_off: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    async_failover: bool = False
    timeout: float = 150.0
    quick: bool = False
