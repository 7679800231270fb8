"""A page becomes entries: each time with its title and its place. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from actors.capture.reading.anchors import Anchor, find_anchors
from actors.capture.reading.columns import Card, Column, Line, columns_of, lines_of
from actors.capture.reading.furniture import Role, heads_of, role_of
from actors.capture.reading.lines import Segment
from actors.capture.reading.places import clean_place, clean_title, is_duration, is_marked, split_place
from actors.capture.reading.result import Entry

Heads = Sequence[tuple[Segment, Role]]

# A line that ends nearer to the edge than its successor's first word is long was broken there.
EDGE_SHARE: Final = 0.96


@dataclass(frozen=True, slots=True)
class Placed:
    """An entry, and where its time stands."""

    entry: Entry
    left: int
    top: int
    column: int


def entries_of(segments: Sequence[Segment], width: int) -> list[Placed]:
    """In the order in which they are to be read."""
    anchors, others = find_anchors(segments)
    if not anchors:
        return []
    first = min(anchor.top for anchor in anchors)
    heads = heads_of(lines_of(segment for segment in others if segment.middle < first))
    others = [segment for segment in others if segment not in [head for head, _ in heads]]
    placed = [
        Placed(entry, anchor.time.left, anchor.top, number)
        for number, column in enumerate(columns_of(anchors, others, width))
        for anchor, entry in _entries(column, heads)
    ]
    return _in_order(placed)


def _in_order(placed: list[Placed]) -> list[Placed]:
    """Columns one after the other, or row by row where that keeps the times in better order."""
    by_row = sorted(placed, key=lambda one: (one.top, one.left))
    return by_row if _steps_back(by_row) < _steps_back(placed) else placed


def _steps_back(placed: Sequence[Placed]) -> int:
    starts = [one.entry.start for one in placed]
    return sum(later < earlier for earlier, later in pairwise(starts))


def _entries(column: Column, heads: Heads) -> Iterator[tuple[Anchor, Entry]]:
    title_first = column.title_first
    for card in column.cards:
        lines = _texts(card, title_first=title_first)
        title, location = _by_heads(lines, heads) if heads and card.beside else _by_order(lines, column)
        if title:
            yield card.anchor, Entry(card.anchor.start, card.anchor.end, title, location)


def _texts(card: Card, *, title_first: bool) -> list[Line]:
    """The lines of a card, its title's first."""
    first = [card.anchor.title] if card.anchor.title else []
    if card.has_text_beside:
        beside = [list(line) for line in card.beside]
        if first and beside:
            beside[0] = [*first, *beside[0]]
        return [*(beside or [first]), *card.below]
    if title_first and card.above:
        return [*card.above, *card.below]
    return card.below or card.above


def _by_heads(lines: Sequence[Line], heads: Heads) -> tuple[str, str | None]:
    """A table whose columns have names; cells of several lines are put together."""
    texts: dict[Role | None, list[str]] = {"time": [], "title": [], "place": [], "other": [], None: []}
    for segment in (segment for line in lines for segment in line):
        texts[role_of(segment, heads)].append(segment.text)
    nameless = texts[None]
    title, location = split_place(" ".join(texts["title"] or nameless[:1]))
    if not texts["title"]:
        nameless = nameless[1:]
    place = " ".join(texts["place"]) or location or " ".join(nameless[:1])
    return title, clean_place(place) if place else None


def _by_order(lines: Sequence[Line], column: Column) -> tuple[str, str | None]:
    """The first text is the title; a text that says so is the place, else the second one."""
    told = ([segment for segment in line if _says_something(segment.text)] for line in lines)
    lines = [line for line in told if line]
    if not lines:
        return "", None
    title, more = lines[0][0].text, lines[0][1:]
    rest = list(lines[1:])
    if not more and rest and _is_broken(lines[0][0], rest[0][0], column):
        title = f"{title} {rest[0][0].text}"
        more = rest.pop(0)[1:]
    extras = [segment.text for segment in (*more, *(segment for line in rest for segment in line))]
    title, location = split_place(title)
    if location is None and extras:
        location = clean_place(next((text for text in extras if is_marked(text)), extras[0]))
    return title, location


def _says_something(text: str) -> bool:
    return bool(clean_title(text)) and not is_duration(text)


def _is_broken(line: Segment, following: Segment, column: Column) -> bool:
    """Whether the text went on in the next line only because the line was full."""
    first = following.words[0]
    is_under = abs(following.left - line.left) <= line.height
    edge = column.right * EDGE_SHARE
    return is_under and not is_marked(following.text) and line.right + first.width + line.height / 3 > edge
