"""Many faults of many kinds, side by side, by a schedule that the seed alone decides."""

import asyncio
import random
from typing import Final

from tests.chaos.faults import Crash, Cut, Freeze, Kill, LinkDown, Pause, Term, TerminateSessions
from tests.chaos.layer import Way
from tests.chaos.load import Load
from tests.chaos.nemesis import Maker, plan, play
from tests.chaos.scenario import Bounds, Scenario
from tests.chaos.topology import Topology
from tests.chaos.world import World
from tests.support.replicas import TAKE_OVER, C, D

HOSTS: Final = ("r1", "r2", "r3", "r4")
WAYS: Final[tuple[Way, ...]] = ("both", "requests", "replies")
OF_PROCESSES: Final[tuple[Maker, ...]] = (
    lambda chance: Kill(chance.choice(HOSTS)),
    lambda chance: Term(chance.choice(HOSTS)),
    lambda chance: Freeze(chance.choice(HOSTS)),
    lambda chance: Pause(chance.choice(HOSTS)),
)
OF_WAYS: Final[tuple[Maker, ...]] = (
    lambda chance: Cut(chance.choice(HOSTS), "pg1", chance.choice(WAYS)),
    lambda chance: Cut(chance.choice(HOSTS), "pg1", chance.choice(WAYS)),
    lambda chance: LinkDown(chance.choice(HOSTS)),
)
OF_THE_DATABASE: Final[tuple[Maker, ...]] = (
    lambda chance: Crash("pg1", power=chance.random() < 0.5),
    lambda _chance: TerminateSessions("pg1"),
)


async def storm(world: World, chance: random.Random) -> None:
    """Three lanes of faults at the same time."""
    lanes = [
        plan(chance, OF_PROCESSES, faults=3),
        plan(chance, OF_WAYS, faults=3),
        plan(chance, OF_THE_DATABASE, faults=2, hold=(0.2, 3.0)),
    ]
    await asyncio.gather(*(play(world, lane) for lane in lanes))


SCENARIOS: Final = (
    Scenario(
        "C40",
        "a storm of faults of processes, ways and the database",
        storm,
        rules=(3, 7, 9, 10, 11, 12),
        expects=("fault", "unknown_outcome"),
        topology=Topology(replicas=4),
        load=Load(per_second=2, seconds=(0.2, 6)),
        needs=("cut", "one-way", "link"),
        bounds=Bounds(terminal=TAKE_OVER + D + C + 16),
        timeout=300,
    ),
)
