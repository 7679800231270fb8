"""What happened, as one list, and as the directory of files that a history checker reads."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from supervisor.config import Timings

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    t: float
    who: str
    what: str
    facts: Facts = field(default_factory=dict)

    def __str__(self) -> str:
        facts = " ".join(f"{name}={_short(value)}" for name, value in self.facts.items())
        return f"{self.t:9.4f}  {self.who:<8} {self.what:<12} {facts}".rstrip()


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 120 else text[:117] + "..."


class Record:
    """`lines` are the files of the directory, by name."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.lines: dict[str, list[Facts]] = defaultdict(list)
        self.closed = False

    def note(self, t: float, who: str, what: str, **facts: Any) -> None:
        if not self.closed:
            self.events.append(Event(round(t, 6), who, what, facts))

    def line(self, file: str, t: float, **facts: Any) -> None:
        if not self.closed:
            self.lines[file].append({"t": round(t, 6), **facts})

    def write(
        self, directory: Path, scenario: Facts, tables: Mapping[str, Iterable[str]], wall: float
    ) -> None:
        """As `supervisor.verify` reads it: made-up seconds in the place of boottime."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "scenario.json").write_text(json.dumps(scenario))
        (directory / "clock.json").write_text(json.dumps({"boottime": scenario["ended_at"], "wall": wall}))
        for name, rows in tables.items():
            path = directory / f"{name}.jsonl"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(f"{row}\n" for row in rows))
        for name, lines in self.lines.items():
            text = "".join(f"{json.dumps(line, default=str)}\n" for line in lines)
            (directory / f"{name}.jsonl").write_text(text)
        (directory / "events.txt").write_text("".join(f"{event}\n" for event in self.events))


def letters(timings: Timings, reassign_after: float) -> dict[str, float]:
    names = ("L", "R", "retry", "H", "C", "S", "k", "D")
    return {**dict(zip(names, asdict(timings).values(), strict=True)), "reassign_after": reassign_after}
