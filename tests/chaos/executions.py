"""What commands did by their own account, from effects.jsonl: lines that no database row can fake."""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.chaos.journal import read_lines
from tests.support.effects import is_alive


@dataclass
class Execution:
    """One claim's execution, as far as it can be seen from outside."""

    root: int
    run: int
    attempt: int
    claim: str
    host: str
    first: float
    last: float
    ended: bool = False
    pids: set[int] = field(default_factory=set)

    def alive(self) -> list[int]:
        return [pid for pid in sorted(self.pids) if is_alive(pid)]


def executions(path: Path) -> list[Execution]:
    """In the order of their beginnings."""
    found: dict[str, Execution] = {}
    for line in read_lines(path):
        at = float(line["t"])
        new = Execution(line["root"], line["run"], line["attempt"], line["claim"], line["host"], at, at)
        one = found.setdefault(line["claim"], new)
        one.first, one.last = min(one.first, at), max(one.last, at)
        one.ended |= line["what"] == "end"
        one.pids.add(line["pid"])
    return sorted(found.values(), key=lambda one: one.first)


def overlaps(path: Path) -> list[str]:
    """Executions of one root that were alive at the same time."""
    by_root: dict[int, list[Execution]] = defaultdict(list)
    for one in executions(path):
        by_root[one.root].append(one)
    return [
        f"root {root}: attempt {one.attempt} lived until {one.last}, {other.attempt} began at {other.first}"
        for root, group in by_root.items()
        for one, other in pairwise(group)
        if other.first <= one.last
    ]
