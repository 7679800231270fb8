"""The figures of many plays as a table in Markdown: what can be quoted, with how often it was played."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import quantiles
from typing import Final

from tests.chaos import judge
from tests.chaos.runner import Result

# of each play the greatest, so the table shows how they are spread over the plays
SPREAD: Final = ("leader_gap", "rerun", "settled")
SUMMED: Final = ("runs", "reruns", "late", "overlaps")


def summary(results: Sequence[Result]) -> list[str]:
    """One line a scenario. Overlaps of controls are wanted, those of the others must be 0."""
    by_name: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.verdict.word != judge.NOT_RUN:
            by_name[result.name].append(result)
    head = ["scenario", "plays", "hold", *(f"{name} p50/p99 s" for name in SPREAD), *SUMMED, "what"]
    lines = [row(head), row("---" for _ in head)]
    for name, plays in by_name.items():
        hold = sum(play.verdict.word == judge.HOLDS for play in plays)
        spreads = [
            spread([play.figures[figure] for play in plays if figure in play.figures]) for figure in SPREAD
        ]
        summed = [f"{sum(play.figures.get(figure, 0) for play in plays):g}" for figure in SUMMED]
        lines.append(row([name, str(len(plays)), str(hold), *spreads, *summed, plays[0].title]))
    return lines


def spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.1f}"
    cuts = quantiles(values, n=100, method="inclusive")
    return f"{cuts[49]:.1f} / {cuts[98]:.1f}"


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
