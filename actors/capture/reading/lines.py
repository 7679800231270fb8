"""Words become segments: runs of words on one line with no wide gap. Pure, and by places alone.

A segment is what a person would call a piece of text: a cell of a table, a line of a card, a heading.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import Final

from actors.capture.reading.words import Page, Word

# In heights of the line. A space between words is below one even in typewriter faces.
WIDE_GAP: Final = 1.5
CELL_GAP: Final = 0.7
# A left edge that so many lines share is the edge of a column, and divides there at smaller gaps.
SHARED_EDGES: Final = 3
MIN_CONFIDENCE: Final = 45.0
MIN_CONFIDENCE_OF_SIGNS: Final = 55.0
MAX_HEIGHT: Final = 4.0
# Frames and rules of tables, where recognition takes them for letters.
FRAME: Final = "|[]{}_¦"
MEANINGFUL_SIGNS: Final = frozenset("-–—−~=→>»&+@:/")  # noqa: RUF001  (all dashes)


@dataclass(frozen=True)
class Segment:
    words: Sequence[Word]

    @cached_property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @cached_property
    def left(self) -> int:
        return min(word.left for word in self.words)

    @cached_property
    def right(self) -> int:
        return max(word.right for word in self.words)

    @cached_property
    def top(self) -> int:
        return min(word.top for word in self.words)

    @cached_property
    def bottom(self) -> int:
        return max(word.bottom for word in self.words)

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2

    def is_beside(self, other: "Segment") -> bool:
        """On the same line."""
        return _overlap(self.top, self.bottom, other.top, other.bottom) > 0.5

    def after(self, end_at: int) -> "Segment | None":
        """What stands behind the first `end_at` characters."""
        return self._of(word for word, _, begins in self._places() if begins >= end_at)

    def before(self, begin_at: int) -> "Segment | None":
        return self._of(word for word, ends, _ in self._places() if ends <= begin_at)

    def between(self, begin_at: int, end_at: int) -> "Segment | None":
        return self._of(word for word, ends, begins in self._places() if ends > begin_at and begins < end_at)

    def _places(self) -> Iterable[tuple[Word, int, int]]:
        at = 0
        for word in self.words:
            yield word, at + len(word.text), at
            at += len(word.text) + 1

    @staticmethod
    def _of(words: Iterable[Word]) -> "Segment | None":
        kept = list(words)
        return Segment(kept) if kept else None


def segments_of(page: Page) -> list[Segment]:
    """From top to bottom, and from left to right."""
    rows = _rows(_legible(page.words))
    segments = [segment for row in rows for segment in _split(row, frozenset(), 0)]
    edges = Counter[int]()
    unit = max(1, round(median(segment.height for segment in segments) / 2)) if segments else 1
    for segment in segments:
        edges[round(segment.left / unit)] += 1
    shared = frozenset(edge for edge, count in edges.items() if count >= SHARED_EDGES)
    divided = [segment for row in rows for segment in _split(row, shared, unit)]
    return sorted(divided, key=lambda segment: (segment.top, segment.left))


def _legible(words: Iterable[Word]) -> list[Word]:
    """Without frames, and without the scribble that icons and lines are read as."""
    cleaned = [_without_frame(word) for word in words]
    kept = [word for word in cleaned if word is not None and _is_legible(word)]
    usual = median(word.height for word in kept) if kept else 0
    return [word for word in kept if word.height <= MAX_HEIGHT * usual]


def _without_frame(word: Word) -> Word | None:
    text = word.text.strip(FRAME)
    if text == word.text:
        return word
    return Word(text, word.left, word.top, word.right, word.bottom, word.confidence) if text else None


def _is_legible(word: Word) -> bool:
    if any(letter.isdigit() for letter in word.text):
        return True  # a doubtful time is still a time: what is none fails to be read as one
    if any(letter.isalpha() for letter in word.text):
        return word.confidence >= MIN_CONFIDENCE
    return word.confidence >= MIN_CONFIDENCE_OF_SIGNS or set(word.text) <= MEANINGFUL_SIGNS


def _rows(words: Iterable[Word]) -> list[list[Word]]:
    """Each word joins the row whose last word is beside it: a large word may have two small lines beside."""
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda word: (word.left, word.top)):
        beside = [(_closeness(row[-1], word), row) for row in rows]
        closeness, row = max(beside, key=lambda pair: pair[0], default=(0.0, []))
        if closeness > 0.5:
            row.append(word)
        else:
            rows.append([word])
    return rows


def _closeness(last: Word, word: Word) -> float:
    if word.left < last.left + last.width // 2:
        return 0.0
    return _overlap(last.top, last.bottom, word.top, word.bottom)


def _overlap(top: int, bottom: int, other_top: int, other_bottom: int) -> float:
    """Shared height, as a share of the smaller one."""
    shared = min(bottom, other_bottom) - max(top, other_top)
    return shared / max(1, min(bottom - top, other_bottom - other_top))


def _split(row: Sequence[Word], shared: frozenset[int], unit: int) -> Iterable[Segment]:
    height = max(word.height for word in row)
    run = [row[0]]
    for last, word in pairwise(row):
        gap = word.left - last.right
        at_edge = unit > 0 and round(word.left / unit) in shared and gap > CELL_GAP * height
        if gap > WIDE_GAP * height or at_edge:
            yield Segment(run)
            run = []
        run.append(word)
    yield Segment(run)
