"""What was found, as Markdown: ratios first, then the figures they come from, then who is missing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.bench.contest import Results


@dataclass(frozen=True)
class Target:
    """A figure beside what was wanted of it; None = it was not measured."""

    what: str
    found: float | None
    relation: str
    wanted: float | None
    unit: str = ""

    @property
    def reached(self) -> bool | None:
        if self.found is None or self.wanted is None:
            return None
        return self.found <= self.wanted if self.relation == "<=" else self.found >= self.wanted

    def row(self) -> str:
        shown = "not measured" if self.found is None else f"{self.found:.3g} {self.unit}".strip()
        wanted = "" if self.wanted is None else f"{self.relation} {self.wanted:g} {self.unit}".strip()
        verdict = {True: "reached", False: "missed", None: ""}[self.reached]
        return f"| {self.what} | {shown} | {wanted} | {verdict} |"


@dataclass(frozen=True)
class Section:
    title: str
    text: str
    body: str
    targets: Sequence[Target]
    failed: Mapping[str, str] = field(default_factory=dict)

    def markdown(self) -> str:
        parts = [f"## {self.title}\n\n{self.text}\n"]
        if self.targets:
            head = "| ratio or figure | found | wanted | |\n|---|---|---|---|\n"
            parts.append(head + "\n".join(target.row() for target in self.targets) + "\n")
        if self.body:
            parts.append(self.body)
        for who, why in self.failed.items():
            parts.append(f"{who} could not be measured: {why.strip().splitlines()[-1][:200]}\n")
        return "\n".join(parts)


def table(results: Results, who: Iterable[str], figures: Mapping[str, str], ours: str) -> str:
    """Medians, and beside each speed what it is of ours."""
    first = next(iter(figures))
    lines = [f"| | {' | '.join(figures)} | {first}, of ours |", f"|---|{'---|' * (len(figures) + 1)}"]
    for name in who:
        values = [(results.median(name, figure), form) for figure, form in figures.items()]
        if all(value is None for value, _ in values):
            continue
        shown = [form.format(value) if value is not None else "" for value, form in values]
        of_ours = results.ratio(name, ours, first)
        lines.append(
            f"| {name} | {' | '.join(shown)} | {of_ours:.3g} |"
            if of_ours
            else f"| {name} | {' | '.join(shown)} | |"
        )
    return "\n".join(lines) + "\n"


def plain_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"
