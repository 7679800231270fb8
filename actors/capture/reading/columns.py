"""Which lines belong to which time: columns of anchors, and the cards in them. Pure.

A column is made of times that stand below each other; it reaches to the next one. Within it the lines between
two times are divided at the widest gap, which is where one card ends and the next begins, whether the time
stands above or below the title.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Final

from actors.capture.reading.anchors import Anchor
from actors.capture.reading.lines import Segment

Line = list[Segment]

# In heights of the text: lines of a card are not further apart.
MAX_GAP: Final = 1.6
# How much wider another gap must be for the card to end there and not right above the next time.
CLEARLY_WIDER: Final = 1.3
PAIR_RATIO: Final = 0.75


@dataclass(slots=True)
class Card:
    """A time with the lines around it."""

    anchor: Anchor
    beside: list[Line] = field(default_factory=list)
    above: list[Line] = field(default_factory=list)
    below: list[Line] = field(default_factory=list)

    @property
    def has_text_beside(self) -> bool:
        return bool(self.beside) or self.anchor.title is not None


@dataclass(frozen=True, slots=True)
class Column:
    cards: Sequence[Card]
    left: float
    right: float

    @property
    def title_first(self) -> bool:
        """Where titles have lines of their own: whether they stand above their times."""
        alone = [card for card in self.cards if not card.has_text_beside]
        above = sum(bool(card.above) for card in alone)
        below = sum(bool(card.below) for card in alone)
        if len(alone) == 1:
            return above > below
        return 2 * above > len(alone) or above > below


def columns_of(anchors: Sequence[Anchor], others: Sequence[Segment], width: int) -> list[Column]:
    groups = _groups(anchors)
    unit = median(anchor.time.height for anchor in anchors) if anchors else 0
    lefts = [min(anchor.left for anchor in group) - unit for group in groups]
    columns = []
    for number, group in enumerate(groups):
        left = lefts[number] if number else 0.0
        right = lefts[number + 1] if number + 1 < len(groups) else float(width)
        inside = [segment for segment in others if left <= segment.left < right]
        columns.append(Column(_cards(_paired(group, inside), inside, unit), left, right))
    return columns


def _groups(anchors: Iterable[Anchor]) -> list[list[Anchor]]:
    """Times whose places overlap when seen from above, from left to right."""
    groups: list[list[Anchor]] = []
    edge = 0
    for anchor in sorted(anchors, key=lambda anchor: anchor.left):
        if groups and anchor.left < edge:
            groups[-1].append(anchor)
            edge = max(edge, anchor.right)
        else:
            groups.append([anchor])
            edge = anchor.right
    return [sorted(group, key=lambda anchor: anchor.top) for group in groups]


def _paired(anchors: list[Anchor], others: Sequence[Segment]) -> list[Anchor]:
    """Starts with their ends below them, where all times of the column stand in pairs."""
    gaps = [below.top - above.bottom for above, below in pairwise(anchors)]
    if len(anchors) % 2 or not gaps or any(anchor.end or not anchor.is_bare for anchor in anchors):
        return anchors
    within, between = gaps[::2], gaps[1::2]
    if between and max(within) >= PAIR_RATIO * min(between):
        return anchors
    if not between and any(segment.is_beside(anchors[1].time) for segment in others):
        return anchors
    return [replace(start, second=end) for start, end in zip(anchors[::2], anchors[1::2], strict=True)]


def _cards(anchors: Sequence[Anchor], others: Sequence[Segment], unit: float) -> list[Card]:
    cards = [Card(anchor) for anchor in anchors]
    rest = []
    for segment in others:
        card = next((card for card in cards if _is_beside(segment, card.anchor)), None)
        if card is None:
            rest.append(segment)
        else:
            card.beside.append([segment])
    for card in cards:
        card.beside = lines_of(segment for line in card.beside for segment in line)
    _share_out(cards, lines_of(rest), MAX_GAP * unit)
    return cards


def _is_beside(segment: Segment, anchor: Anchor) -> bool:
    return segment.is_beside(anchor.time) or (
        anchor.second is not None
        and segment.left > anchor.time.right
        and anchor.top <= segment.middle <= anchor.bottom
    )


def lines_of(segments: Iterable[Segment]) -> list[Line]:
    """Segments on one line together, from top to bottom."""
    lines: list[Line] = []
    for segment in sorted(segments, key=lambda segment: segment.middle):
        if lines and segment.is_beside(lines[-1][-1]):
            lines[-1].append(segment)
        else:
            lines.append([segment])
    return [sorted(line, key=lambda segment: segment.left) for line in lines]


def _share_out(cards: Sequence[Card], lines: Sequence[Line], max_gap: float) -> None:
    """Each line to the time above or below it, if it is near enough."""
    for number, card in enumerate(cards):
        upper = cards[number - 1] if number else None
        between = [line for line in lines if _middle(line) < card.anchor.top and _is_after(line, upper)]
        keep = _split_at(upper, between, card) if upper else 0
        if upper:
            upper.below = _chain(_bottom_of(upper), between[:keep], max_gap)
        card.above = _chain_up(card.anchor.top, between[keep:], max_gap)
    if cards:
        last = cards[-1]
        last.below = _chain(_bottom_of(last), [line for line in lines if _is_after(line, last)], max_gap)


def _is_after(line: Line, card: Card | None) -> bool:
    return card is None or _middle(line) > card.anchor.bottom


def _split_at(upper: Card, between: Sequence[Line], lower: Card) -> int:
    """How many of the lines are the upper one's."""
    edges = [_bottom_of(upper), *(_bottom(line) for line in between)]
    tops = [*(_top(line) for line in between), lower.anchor.top]
    gaps = [top - bottom for top, bottom in zip(tops, edges, strict=True)]
    widest = max(range(len(gaps)), key=lambda at: gaps[at])
    return widest if gaps[widest] > CLEARLY_WIDER * max(1, gaps[-1]) else len(between)


def _chain(bottom: float, lines: Sequence[Line], max_gap: float) -> list[Line]:
    chain = []
    for line in lines:
        if _top(line) - bottom > max_gap:
            break
        chain.append(line)
        bottom = _bottom(line)
    return chain


def _chain_up(top: float, lines: Sequence[Line], max_gap: float) -> list[Line]:
    chain: list[Line] = []
    for line in reversed(lines):
        if top - _bottom(line) > max_gap:
            break
        chain.insert(0, line)
        top = _top(line)
    return chain


def _bottom_of(card: Card) -> int:
    return max([card.anchor.bottom, *(_bottom(line) for line in card.beside)])


def _top(line: Line) -> int:
    return min(segment.top for segment in line)


def _bottom(line: Line) -> int:
    return max(segment.bottom for segment in line)


def _middle(line: Line) -> float:
    return (_top(line) + _bottom(line)) / 2
