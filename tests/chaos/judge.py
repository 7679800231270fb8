"""The verdict over a recorded directory: the product's own checker, and what a scenario asserted itself."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from supervisor.errors import TenureError
from supervisor.verify import recorded
from supervisor.verify.report import Finding
from tests.chaos.journal import read_lines

HOLDS: Final = "HOLDS"
BROKEN: Final = "BROKEN"
INCONCLUSIVE: Final = "INCONCLUSIVE"
NOT_RUN: Final = "NOT RUN"


@dataclass
class Verdict:
    word: str
    findings: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)


def table(history: Path, name: str) -> list[dict[str, Any]]:
    """What the dump has of a table; nothing where there was no dump."""
    return read_lines(history / "database" / f"{name}.jsonl")


def calls(history: Path) -> list[dict[str, Any]]:
    """The lines of all replicas' calls, also while they run."""
    return list(chain.from_iterable(read_lines(path) for path in sorted(history.glob("calls-*.jsonl"))))


def judge(history: Path, found: Sequence[str]) -> Verdict:
    """`found` is what was broken before the checker looked. What did not happen is a doubt, not a pass."""
    try:
        report = recorded.check(history)
    except TenureError as error:
        return Verdict(BROKEN, [*found, f"the history cannot be read: {error}"])
    findings = [*found, *map(_shown, report.findings)]
    if findings:
        return Verdict(BROKEN, findings, dict(report.figures))
    return Verdict(report.verdict, list(report.doubts), dict(report.figures))


def _shown(finding: Finding) -> str:
    return "\n    ".join([f"{finding.property} {finding.text}", *finding.excerpt])
