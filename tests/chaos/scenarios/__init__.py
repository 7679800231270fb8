"""Every scenario there is. A family is a module with a SCENARIOS tuple and one line here."""

from typing import Final

from tests.chaos.scenario import Scenario
from tests.chaos.scenarios import (
    clock,
    database,
    disk,
    failover,
    leader,
    mixed,
    network,
    peers,
    pooler,
    redis,
    work,
    worker,
)

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *leader.SCENARIOS,
    *worker.SCENARIOS,
    *database.SCENARIOS,
    *failover.SCENARIOS,
    *disk.SCENARIOS,
    *clock.SCENARIOS,
    *mixed.SCENARIOS,
    *redis.SCENARIOS,
    *network.SCENARIOS,
    *pooler.SCENARIOS,
    *work.SCENARIOS,
    *peers.SCENARIOS,
)


def groups(name: str) -> list[list[Scenario]]:
    """The worlds that a name asks for: `C03`, where there is none, is C03a, C03b, ... in a world each."""
    if any(one.id == name for one in SCENARIOS):
        return [find(name)]
    letters = [one for one in SCENARIOS if one.id[:-1] == name and one.id[-1].isalpha()]
    return [[one] for one in letters] or [find(name)]


def find(name: str) -> list[Scenario]:
    """By id; `C01+C02` are two that share a world."""
    by_id = {one.id: one for one in SCENARIOS}
    unknown = [part for part in name.split("+") if part not in by_id]
    if unknown:
        raise SystemExit(f"no scenario {', '.join(unknown)}; there are {', '.join(by_id)}")
    return [by_id[part] for part in name.split("+")]
