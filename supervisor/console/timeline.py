"""What a piece of work went through, as lanes of time: one lane an attempt. Pure.

A lane is one assignment: the history is cut where the attempt's number changes. Widths are percentages of the
time shown, so that a template draws them at any width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from supervisor.jobrun import TERMINAL

LEAST: Final = 0.5
"""A moment too short to be seen is drawn this wide."""
TICKS: Final = 4
NICE: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
               900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Segment:
    kind: str
    x: float
    width: float
    seconds: float
    reason: str | None


@dataclass(slots=True)
class Lane:
    attempt: int
    run_id: int
    worker_id: str | None
    segments: list[Segment] = field(default_factory=list)
    end: str | None = None
    end_x: float = 0.0


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Timeline:
    lanes: list[Lane]
    ticks: list[Tick]
    begin: datetime
    seconds: float


def timeline(steps: Sequence[Mapping[str, Any]], now: datetime) -> Timeline | None:
    """From rows of `see_steps`, in order."""
    if not steps:
        return None
    begin = steps[0]["at"]
    ended = steps[-1]["to_state"] in TERMINAL
    end = steps[-1]["at"] if ended else max(now, steps[-1]["at"])
    whole = max((end - begin).total_seconds(), 0.001)
    lanes: dict[tuple[int, int], Lane] = {}
    for step, until in zip(steps, _untils(steps, end), strict=True):
        key = (step["run_id"], step["attempt"])
        lane = lanes.setdefault(key, Lane(step["attempt"], step["run_id"], None))
        lane.worker_id = lane.worker_id or step["worker_id"]
        if step["to_state"] in TERMINAL:
            lane.end, lane.end_x = step["to_state"], _share(step["at"] - begin, whole)
        else:
            lane.segments.append(_segment(step, begin, until, whole))
    return Timeline(list(lanes.values()), _ticks(whole), begin, whole)


def _untils(steps: Sequence[Mapping[str, Any]], end: datetime) -> list[datetime]:
    """When each step was followed by another of the same run."""
    later: dict[int, datetime] = {}
    untils = []
    for step in reversed(steps):
        untils.append(later.get(step["run_id"], end))
        later[step["run_id"]] = step["at"]
    return untils[::-1]


def _segment(step: Mapping[str, Any], begin: datetime, until: datetime, whole: float) -> Segment:
    seconds = max(0.0, (until - step["at"]).total_seconds())
    kind = "CONFIRMING" if step["continuation_state"] == "CONFIRMING" else step["to_state"]
    x = min(_share(step["at"] - begin, whole), 100 - LEAST)
    width = max(LEAST, round(100 * seconds / whole, 3))
    return Segment(kind, x, min(width, round(100 - x, 3)), seconds, step["reason"])


def _share(passed: timedelta, whole: float) -> float:
    return round(max(0.0, min(100.0, 100 * passed.total_seconds() / whole)), 3)


def _ticks(whole: float) -> list[Tick]:
    step = next(
        (nice for nice in NICE if whole / nice <= TICKS), NICE[-1] * max(1, whole // (NICE[-1] * TICKS))
    )
    count = int(whole / step)
    return [Tick(round(100 * step * number / whole, 3), step * number) for number in range(count + 1)]
