"""CPU time of whole process trees, from /proc.

A parent's record includes the time of the children it has waited for, so the sum over the living is the time
of everybody there ever was. It counts what was executed, not how long it took: on a busy machine it stays
nearly the same.
"""

import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

TICKS: Final = os.sysconf("SC_CLK_TCK")
_PARENT, _TIMES = 1, slice(11, 15)


def seconds_of(*roots: int) -> float:
    records = _records()
    children: dict[int, list[int]] = defaultdict(list)
    for pid, fields in records.items():
        children[int(fields[_PARENT])].append(pid)
    return sum(_spent(records[pid]) for pid in _below(roots, children) if pid in records)


def _below(roots: Iterable[int], children: dict[int, list[int]]) -> Iterable[int]:
    for root in roots:
        yield root
        yield from _below(children[root], children)


def _spent(fields: list[str]) -> float:
    return sum(map(int, fields[_TIMES])) / TICKS


def _records() -> dict[int, list[str]]:
    """By process, the fields of its stat after the name, which may hold anything."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                found[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
    return found
