"""What commands did, by their own account: lines in a file that no database row can fake.

Each execution appends `boottime what run attempt claim pid`, begin first, then a sign of life every so often,
then end. The clock is /proc/uptime, the same one that bounds an execution; appends of one line are atomic.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

PULSE_SECONDS = 0.1

_SCRIPT = """
note() { read now _ < /proc/uptime; echo "$now $1 $TENURE_RUN_ID $TENURE_ATTEMPT $TENURE_CLAIM $$" >> "$0"; }
note begin
read until _ < /proc/uptime
until=$(( ${until%.*}${until#*.} + $1 ))
while read now _ < /proc/uptime && [ $(( ${now%.*}${now#*.} )) -lt $until ]; do sleep PULSE; note alive; done
note end
"""
_SHORT = """
read now _ < /proc/uptime
echo "$now begin $TENURE_RUN_ID $TENURE_ATTEMPT $TENURE_CLAIM $$" >> "$0"
echo "$now end $TENURE_RUN_ID $TENURE_ATTEMPT $TENURE_CLAIM $$" >> "$0"
"""
# A child in a session of its own whose parent is gone at once; it writes under the same claim.
_BROOD = """
( setsid sh -c 'while :; do
    read now _ < /proc/uptime
    echo "$now alive $TENURE_RUN_ID $TENURE_ATTEMPT $TENURE_CLAIM $$" >> "$0"
    sleep PULSE
done' "$0" & )
"""


@dataclass
class Execution:
    """One claim's execution, as far as it can be seen from outside."""

    run_id: int
    attempt: int
    claim: str
    first: float
    last: float
    begins: int = 0
    ended: bool = False
    pids: set[int] = field(default_factory=set)

    def alive(self) -> list[int]:
        return [pid for pid in sorted(self.pids) if is_alive(pid)]


class Effects:
    def __init__(self, file: Path, stretch: float = 1.0) -> None:
        self.file = file
        file.touch()  # commands cannot make files where their replica's state directory is
        self._stretch = stretch

    def command(self, seconds: float, *, brood: bool = False) -> dict[str, Any]:
        """The payload of a command that takes so long, times the fleet's stretch.

        `brood` leaves a double-forked child behind it.
        """
        script = (_BROOD if brood else "") + _SCRIPT
        return self.script(
            script.replace("PULSE", str(PULSE_SECONDS)), str(int(seconds * self._stretch * 100))
        )

    def short_command(self) -> dict[str, Any]:
        """As little work as there can be, still with its effect."""
        return self.script(_SHORT)

    def script(self, script: str, *arguments: str) -> dict[str, Any]:
        return {"argv": ["sh", "-c", script, str(self.file), *arguments]}

    def executions(self) -> dict[str, Execution]:
        """By claim."""
        found: dict[str, Execution] = {}
        for line in self.file.read_text().splitlines() if self.file.exists() else ():
            now, what, run, attempt, claim, pid = line.split()
            at = float(now)
            one = found.setdefault(claim, Execution(int(run), int(attempt), claim, at, at))
            one.first, one.last = min(one.first, at), max(one.last, at)
            one.begins += what == "begin"
            one.ended |= what == "end"
            one.pids.add(int(pid))
        return found

    def of(self, run_id: int) -> Execution | None:
        return next((one for one in self.executions().values() if one.run_id == run_id), None)

    def overlaps(self, roots: Mapping[int, int]) -> list[str]:
        """Executions of one root that were alive at the same time; `roots` gives the root of each run."""
        by_root: dict[int, list[Execution]] = defaultdict(list)
        for one in self.executions().values():
            by_root[roots[one.run_id]].append(one)
        return [text for root, group in by_root.items() for text in _overlaps(root, group)]


def _overlaps(root: int, group: Iterable[Execution]) -> list[str]:
    ordered = sorted(group, key=lambda one: one.first)
    return [
        f"root {root}: attempt {one.attempt} lived until {one.last}, {other.attempt} began at {other.first}"
        for one, other in pairwise(ordered)
        if other.first <= one.last
    ]


def is_alive(pid: int) -> bool:
    """Running or stopped; a zombie does nothing any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
