"""What a check answers."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from supervisor.verify.records import Move

Verdict = Literal["HOLDS", "BROKEN", "INCONCLUSIVE"]

SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """A property that does not hold, and the least that shows it."""

    property: str
    text: str
    excerpt: tuple[str, ...] = ()
    seconds: float | None = None
    """By how much, where only the database's clock shows it: a clock that was set back shows as much."""


@dataclass(frozen=True, slots=True)
class Report:
    verdict: Verdict
    findings: tuple[Finding, ...]
    properties: Mapping[str, Verdict]
    doubts: tuple[str, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Findings:
    """Some of each property, the plainest first, and how many there were."""

    def __init__(self) -> None:
        self._kept: dict[str, list[Finding]] = {}
        self._counted: dict[str, int] = {}

    def add(self, found: Iterable[Finding]) -> None:
        for finding in found:
            name = finding.property
            self._counted[name] = self._counted.get(name, 0) + 1
            kept = self._kept.setdefault(name, [])
            kept.append(finding)
            if len(kept) > 2 * SHOWN:
                kept.sort(key=_plainness)
                del kept[SHOWN:]

    def beyond(self, slack: float) -> list[Finding]:
        """Without those that a clock set back by `slack` seconds explains."""
        told: list[Finding] = []
        for name, kept in sorted(self._kept.items(), key=lambda pair: int(pair[0][1:])):
            real = [one for one in kept if one.seconds is None or one.seconds > slack]
            told += sorted(real, key=_plainness)[:SHOWN]
            if real and (more := self._counted[name] - len(kept) + max(0, len(real) - SHOWN)):
                told.append(Finding(name, f"... and up to {more} more of this kind"))
        return told


def _plainness(finding: Finding) -> float:
    return float("-inf") if finding.seconds is None else -finding.seconds


def verdict_of(findings: Iterable[Finding], doubts: Iterable[str]) -> Verdict:
    return "BROKEN" if any(findings) else "INCONCLUSIVE" if any(doubts) else "HOLDS"


def shown(move: Move) -> str:
    """A move in one line."""
    what = move.state if move.before != move.state else f"{move.state} {move.continuation}"
    return (
        f"run {move.run} v{move.version} {move.before or '-'} > {what} attempt {move.attempt}"
        f" by {move.actor} epoch {move.epoch} worker {move.worker} claim {short(move.claim)}"
        f" at {move.at:.6f} {move.reason or ''}"
    ).rstrip()


def short(claim: str | None) -> str:
    return (claim or "-")[:8]
