"""Rounds in which everybody has a turn, A B C A B C: what disturbs the machine disturbs them all alike."""

import statistics
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

Figures = Mapping[str, float]
Turn = Callable[[], Awaitable[Figures]]


@dataclass(frozen=True)
class Results:
    """By contestant and figure, one value a round; `failed` says why somebody has none."""

    values: Mapping[str, Mapping[str, Sequence[float]]]
    failed: Mapping[str, str]

    def median(self, who: str, figure: str) -> float | None:
        values = self.values.get(who, {}).get(figure)
        return statistics.median(values) if values else None

    def ratio(self, who: str, other: str, figure: str) -> float | None:
        """The median of the rounds' own ratios: both of a pair had the same weather."""
        mine, theirs = (self.values.get(name, {}).get(figure, ()) for name in (who, other))
        pairs = [one / two for one, two in zip(mine, theirs, strict=False) if two]
        return statistics.median(pairs) if pairs else None


async def contest(turns: Mapping[str, Turn], rounds: int) -> Results:
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    failed: dict[str, str] = {}
    for number in range(rounds):
        for who, turn in turns.items():
            if who in failed:
                continue
            try:
                figures = await turn()
            except Exception as error:  # noqa: BLE001  a peer that cannot be run is reported, and the others go on
                failed[who] = f"{type(error).__name__}: {error}"
                say(f"{who}: {failed[who]}")
                continue
            for figure, value in figures.items():
                values[who][figure].append(value)
            shown = "  ".join(f"{figure} {value:,.4g}" for figure, value in figures.items())
            say(f"  {number + 1}/{rounds} {who:24} {shown}")
    return Results(values, failed)


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")
