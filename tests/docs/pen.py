"""A pen for docs/pictures: boxes, arrows and words as SVG, readable on light and on dark. Not a test."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape, quoteattr

LIGHT: Final = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "faint": "#59636e",
    "box": "#f6f8fa",
    "leader": "#0550ae",
    "worker": "#116329",
    "both": "#8250df",
    "stop": "#bc4c00",
}
DARK: Final = {
    "paper": "#0d1117",
    "ink": "#e6edf3",
    "faint": "#9198a1",
    "box": "#1c2430",
    "leader": "#79c0ff",
    "worker": "#7ee787",
    "both": "#d2a8ff",
    "stop": "#ffa657",
}
HUES: Final = ("ink", "faint", "leader", "worker", "both", "stop")
LINE: Final = 16
Point = tuple[float, float]


def _style() -> str:
    def colours(names: dict[str, str]) -> str:
        return " ".join(f"--{name}: {value};" for name, value in names.items())

    hues = " ".join(
        f".s-{hue} {{ stroke: var(--{hue}); }} .f-{hue} {{ fill: var(--{hue}); }}" for hue in HUES
    )
    return (
        f"svg {{ {colours(LIGHT)} }} @media (prefers-color-scheme: dark) {{ svg {{ {colours(DARK)} }} }} "
        "text { font: 13px ui-sans-serif, 'DejaVu Sans', sans-serif; } .small { font-size: 11.5px; } "
        ".bold { font-weight: 600; } .line { fill: none; stroke-width: 1.6; } "
        ".dash { stroke-dasharray: 5 4; } "
        f".box {{ fill: var(--box); stroke-width: 1.4; }} .paper {{ fill: var(--paper); }} {hues}"
    )


@dataclass
class Pen:
    title: str
    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def box(
        self, at: Point, size: Point, lines: Sequence[str], *, hue: str = "faint", dashed: bool = False
    ) -> None:
        """The first line is the name; the words stand in the middle."""
        (x, y), (width, height) = at, size
        dash = " dash" if dashed else ""
        self._rect(at, size, f"box s-{hue}{dash}")
        top = y + height / 2 - (len(lines) - 1) * LINE / 2 + 4.5
        for number, line in enumerate(lines):
            kind = "bold" if number == 0 else "small"
            self.text((x + width / 2, top + number * LINE), line, kind=kind, anchor="middle")

    def frame(self, at: Point, size: Point, name: str, *, hue: str = "faint") -> None:
        """A box around others, named in its upper left corner."""
        self._rect(at, size, f"line s-{hue} dash")
        self.text((at[0] + 12, at[1] + 20), name, kind="bold", hue=hue)

    def _rect(self, at: Point, size: Point, kinds: str) -> None:
        (x, y), (width, height) = at, size
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" class="{kinds}"/>'
        )

    def text(self, at: Point, words: str, *, kind: str = "", hue: str = "ink", anchor: str = "start") -> None:
        x, y = at
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" class="{kind} f-{hue}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def label(self, at: Point, words: str, *, hue: str) -> None:
        """Words on a line, with paper behind them."""
        x, y = at
        width = 6.5 * len(words) + 8
        self._rect((x - width / 2, y - 9), (width, 18), "paper")
        self.text((x, y + 4), words, kind="small", hue=hue, anchor="middle")

    def arrow(
        self,
        points: Sequence[Point],
        *,
        hue: str = "ink",
        dashed: bool = False,
        head: bool = True,
        facts: dict[str, str] | None = None,
    ) -> None:
        """A line through the points; `facts` become data- attributes, for whoever reads the picture again."""
        way = " ".join(f"{'L' if number else 'M'}{x:g} {y:g}" for number, (x, y) in enumerate(points))
        dash = " dash" if dashed else ""
        told = "".join(f" data-{name}={quoteattr(value)}" for name, value in (facts or {}).items())
        mark = f' marker-end="url(#head-{hue})"' if head else ""
        self.parts.append(f'<path d="{way}" class="line s-{hue}{dash}"{mark}{told}/>')

    def svg(self) -> str:
        marks = "\n".join(
            f'<marker id="head-{hue}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"'
            f' orient="auto-start-reverse"><path d="M0 1 L9 5 L0 9 z" class="f-{hue}"/></marker>'
            for hue in HUES
        )
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
            f' width="{self.width}" height="{self.height}" role="img" aria-label={quoteattr(self.title)}>\n'
            f"<title>{escape(self.title)}</title>\n<style>{_style()}</style>\n<defs>\n{marks}\n</defs>\n"
            f'<rect width="{self.width}" height="{self.height}" class="paper"/>\n{body}\n</svg>\n'
        )
