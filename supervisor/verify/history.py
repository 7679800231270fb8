"""A whole history, and the limits within which it is judged. A part that is None was not recorded."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from supervisor.verify.records import (
    Call,
    Death,
    Effect,
    Fault,
    Late,
    Move,
    Offer,
    Root,
    Schedule,
    Tenure,
    Term,
    Thing,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a check may assume about clocks and bounds.

    `clock_steps`: the database's clock may have been set, so that its times can go back.
    """

    stop_bound: float | None = None
    clock_steps: bool = False
    contacts: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """By worker: until when a call was answered, and when the last one answered by then was sent."""

    def last_contact(self, worker: str, at: float) -> float:
        """A call that was still under way at `at` may have been counted later."""
        contacts = self.contacts.get(worker, ())
        place = bisect_right(contacts, (at, float("inf")))
        return contacts[place - 1][1] if place else float("-inf")


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a test set out to do. `timings` has the letters of the design: L R retry H C S k D.

    `without` names parts that it never meant to record: that they are missing is no reason for doubt.
    """

    name: str = ""
    timings: Mapping[str, float] = field(default_factory=dict)
    healed_at: float | None = None
    ended_at: float | None = None
    bounds: Mapping[str, float] = field(default_factory=dict)
    async_failover: bool = False
    expects: Sequence[str] | None = None
    without: frozenset[str] = frozenset({"things"})


@dataclass(frozen=True)
class History:
    """`slack`: by how many seconds the database's clock may have gone back."""

    scenario: Scenario | None = None
    limits: Limits = field(default_factory=Limits)
    slack: float = 0.0
    roots: Sequence[Root] | None = None
    tenures: Sequence[Tenure] | None = None
    term: Term | None = None
    lates: Sequence[Late] | None = None
    schedules: Sequence[Schedule] | None = None
    calls: Sequence[Call] | None = None
    effects: Sequence[Effect] | None = None
    offers: Sequence[Offer] | None = None
    faults: Sequence[Fault] | None = None
    deaths: Sequence[Death] | None = None
    things: Sequence[Thing] | None = None
    lost: "History | None" = None
    figures: dict[str, float] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)

    def has(self, part: str) -> bool:
        return getattr(self, part) is not None

    def moves(self) -> Iterator[Move]:
        for root in self.roots or ():
            for moves in root.moves.values():
                yield from moves

    @cached_property
    def by_run(self) -> dict[int, tuple[Root, Any]]:
        """Each run with its root."""
        return {run.id: (root, run) for root in self.roots or () for run in root.runs}

    def called(self, *names: str) -> Iterator[Call]:
        return (call for call in self.calls or () if call.name in names)


def went_back(roots: Sequence[Root], tenures: Sequence[Tenure]) -> float:
    """By how many seconds the database's clock was seen to go back."""
    steps = [0.0]
    for root in roots:
        for moves in root.moves.values():
            steps.extend(one.at - other.at for one, other in pairwise(moves))
    steps.extend(one.at - other.at for one, other in pairwise(tenures))
    return max(steps)
