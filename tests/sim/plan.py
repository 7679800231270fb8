"""What a simulation depends on, and what came of it."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.sim.record import Event


@dataclass(frozen=True)
class Plan:
    """All that a simulation depends on."""

    seed: int
    replicas: int = 3
    fault_seconds: float = 20.0
    rules_off: frozenset[str] = frozenset()
    faults: tuple[str, ...] | None = None
    scenario: str | None = None
    """A story of its own instead of load and faults (scenarios.py)."""
    steps: int | None = None
    often: bool = False
    """Look at the whole database after every statement, to see where it breaks first."""
    directory: Path | None = None


@dataclass
class Result:
    plan: Plan
    violations: list[str]
    events: list[Event]
    steps: int
    seconds: float
    healed_at: float
    statements: int
    seen: dict[str, int] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)
