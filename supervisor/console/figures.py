"""The overview's charts as geometry: percentages of a box, so that they fit any width. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from supervisor.console.attention import LATE_SECONDS

MINUTES: Final = 60
OUTCOMES: Final = ("SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED")
BAR: Final = 0.78
"""How much of a minute's width its bar takes."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A rectangle; `kind` gives its colour."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    title: str = ""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Attempts that ended, by whole minutes over an hour, the last of them not over yet; stacked by how."""

    pieces: list[Piece]
    peak: int
    totals: Mapping[str, int]
    waits: list[Piece]
    longest_wait_seconds: float

    @property
    def total(self) -> int:
        return sum(self.totals.values())


@dataclass(frozen=True, slots=True)
class Lag:
    """How much of the scale it fills, in percent."""

    domain: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class Lags:
    """`scale_seconds` is what a full bar stands for."""

    bars: list[Lag]
    scale_seconds: float


def throughput(rows: Iterable[Mapping[str, Any]]) -> Throughput:
    """From rows of `see_outcomes`."""
    counts: dict[int, dict[str, int]] = {}
    waits: dict[int, float] = {}
    for row in rows:
        minute = row["minutes_ago"]
        if 0 <= minute < MINUTES:
            counts.setdefault(minute, {})[row["state"]] = row["runs"]
            waits[minute] = max(waits.get(minute, 0.0), row["longest_wait_seconds"] or 0.0)
    peak = max((sum(states.values()) for states in counts.values()), default=0)
    longest = max(waits.values(), default=0.0)
    return Throughput(
        pieces=[piece for minute in sorted(counts) for piece in _stack(minute, counts[minute], peak)],
        peak=peak,
        totals={
            state: sum(states.get(state, 0) for states in counts.values())
            for state in OUTCOMES
            if any(state in states for states in counts.values())
        },
        waits=[_bar("wait", minute, 0.0, seconds / longest) for minute, seconds in waits.items() if seconds],
        longest_wait_seconds=longest,
    )


def _stack(minute: int, states: Mapping[str, int], peak: int) -> Iterable[Piece]:
    below = 0
    for state in OUTCOMES:
        if count := states.get(state, 0):
            yield _bar(state, minute, below / peak, count / peak)
            below += count


def _bar(kind: str, minute: int, below: float, height: float) -> Piece:
    slot = 100 / MINUTES
    x = 100 - (minute + 1) * slot + slot * (1 - BAR) / 2
    return Piece(
        kind, _percent(x), _percent(100 * (1 - below - height)), _percent(slot * BAR), _percent(100 * height)
    )


def lags(seconds: Mapping[str, float]) -> Lags:
    """The longest wait of a due run in each domain. A full bar is never less than what is called late: the
    largest of short waits does not look like an alarm."""
    scale = max(LATE_SECONDS, *seconds.values()) if seconds else LATE_SECONDS
    bars = [Lag(domain, value, _percent(100 * value / scale)) for domain, value in sorted(seconds.items())]
    return Lags(bars, scale)


def _percent(value: float) -> float:
    return round(value, 3)
