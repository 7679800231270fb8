"""Schedules of faults from a seed: which, whom, when, for how long. The same seed gives the same schedule."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from supervisor.clock import boottime
from tests.chaos.world import Fault, World

# makes a fault, with whatever it wants from the random numbers it is given
Maker = Callable[[random.Random], Fault]


@dataclass(frozen=True)
class Planned:
    at: float
    fault: Fault
    seconds: float

    def __str__(self) -> str:
        return f"{self.at:5.1f} s: {self.fault!r} for {self.seconds:.1f} s"


def plan(
    chance: random.Random,
    makers: Sequence[Maker],
    *,
    faults: int,
    pause: tuple[float, float] = (0.5, 3.0),
    hold: tuple[float, float] = (0.5, 9.0),
) -> list[Planned]:
    """One after another: so many faults with pauses between them."""
    at, planned = 0.0, []
    for _ in range(faults):
        at += chance.uniform(*pause)
        seconds = chance.uniform(*hold)
        planned.append(Planned(round(at, 2), chance.choice(makers)(chance), round(seconds, 2)))
        at += seconds
    return planned


async def play(world: World, planned: Sequence[Planned]) -> None:
    """As planned; where one took longer to undo, the next comes later."""
    began = boottime()
    for one in planned:
        await world.passed(began, one.at)
        await world.begin(one.fault)
        await world.passed(boottime(), one.seconds)
        await world.end(one.fault)
