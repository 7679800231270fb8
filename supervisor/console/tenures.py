"""Who led when, and when nobody did, as pieces of time. Pure.

The log says when a tenure was taken and when it was resigned. One that ended without a word (its replica was
lost) led for certain until it last renewed, which the next one noted: the gap between is at most so long.
Where that is not noted (an older version took over) it is drawn until the next one was taken.
Only for the last tenure is the end of its lease known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Ending = Literal["leads", "resigned", "lost"]


@dataclass(frozen=True, slots=True)
class Term:
    """`end` of a lost one is its last renewal where `renewed`, else the latest it can have been."""

    epoch: int
    holder: str
    begin: datetime
    end: datetime
    ending: Ending
    reason: str | None
    renewed: bool = False
    x: float = 0.0
    width: float = 0.0

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()


@dataclass(frozen=True, slots=True)
class Gap:
    """Nobody led: for certain, or `at_most` so long."""

    begin: datetime
    end: datetime
    at_most: bool = False
    x: float = 0.0
    width: float = 0.0

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()


@dataclass(frozen=True, slots=True)
class Reign:
    terms: list[Term]
    gaps: list[Gap]
    begin: datetime
    end: datetime


def reign(
    log: Sequence[Mapping[str, Any]], leader: Mapping[str, Any], since: datetime | None
) -> Reign | None:
    """`log` newest first as `list_tenures` gives it, `leader` from `show_leader`; drawn from `since` on."""
    now: datetime = leader["now"]
    resigned = {row["epoch"]: row for row in log if row["what"] == "RESIGNED"}
    taken = sorted((row for row in log if row["what"] == "ACQUIRED"), key=lambda row: row["epoch"])
    terms = []
    for place, row in enumerate(taken):
        following = taken[place + 1] if place + 1 < len(taken) else None
        end, ending, renewed = _end(row, resigned.get(row["epoch"]), following, leader)
        reason = resigned[row["epoch"]]["reason"] if row["epoch"] in resigned else None
        terms.append(Term(row["epoch"], row["holder"], row["at"], end, ending, reason, renewed))
    if not terms:
        return None
    begin = max(terms[0].begin, since) if since is not None else terms[0].begin
    return _drawn(terms, begin, now)


def _end(
    row: Mapping[str, Any],
    resigned: Mapping[str, Any] | None,
    following: Mapping[str, Any] | None,
    leader: Mapping[str, Any],
) -> tuple[datetime, Ending, bool]:
    if resigned is not None:
        return resigned["at"], "resigned", False
    if following is not None:
        renewed = following["before_renewed_at"]
        if renewed is not None and row["at"] <= renewed <= following["at"]:
            return renewed, "lost", True
        return following["at"], "lost", False
    if leader["live"] and leader["epoch"] == row["epoch"]:
        return leader["now"], "leads", False
    return min(leader["expires_at"] or leader["now"], leader["now"]), "lost", False


def _drawn(terms: Sequence[Term], begin: datetime, now: datetime) -> Reign:
    whole = max((now - begin).total_seconds(), 0.001)

    def place(one: datetime, other: datetime) -> tuple[float, float]:
        x = max(0.0, 100 * (one - begin).total_seconds() / whole)
        return round(x, 3), round(max(0.15, 100 * (other - begin).total_seconds() / whole - x), 3)

    shown = [term for term in terms if term.end > begin or term.ending == "leads"]
    gaps = []
    for term, following in zip(shown, [*(other.begin for other in shown[1:]), now], strict=True):
        if term.ending != "leads" and following > term.end:
            x, width = place(term.end, following)
            gaps.append(Gap(term.end, following, term.renewed, x, width))
    return Reign(
        [
            Term(t.epoch, t.holder, t.begin, t.end, t.ending, t.reason, t.renewed, *place(t.begin, t.end))
            for t in reversed(shown)
        ],
        gaps[::-1],
        begin,
        now,
    )
