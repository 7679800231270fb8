"""Words with their places: what a chamber sees in a picture, and all that its replica believes of it.

The child may have been taken over by its input, so what it wrote is checked like any other input.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

MAX_WORDS: Final = 2_000
MAX_WORD_LENGTH: Final = 100
MAX_BYTES: Final = 2 << 20
MAX_SIDE: Final = 100_000


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    left: int
    top: int
    right: int
    bottom: int
    confidence: float = 100.0

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def width(self) -> int:
        return self.right - self.left


@dataclass(frozen=True, slots=True)
class Page:
    """A picture as words; width and height are in the same pixels."""

    width: int
    height: int
    words: Sequence[Word]


def encode(page: Page) -> bytes:
    rows = [
        [word.text[:MAX_WORD_LENGTH], word.left, word.top, word.right, word.bottom, round(word.confidence, 1)]
        for word in page.words[:MAX_WORDS]
    ]
    return json.dumps({"width": page.width, "height": page.height, "words": rows}).encode()


def decode(data: bytes) -> Page | None:
    """The page, or None where this is not one."""
    try:
        page = json.loads(data)
    except (ValueError, RecursionError):
        return None
    match page:
        case {"width": int(width), "height": int(height), "words": list(rows)} if len(rows) <= MAX_WORDS:
            if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
                return None
            words = [_word(row, width, height) for row in rows]
            return Page(width, height, [word for word in words if word is not None])
        case _:
            return None


def _word(row: Any, width: int, height: int) -> Word | None:
    match row:
        case [str(text), int(left), int(top), int(right), int(bottom), int() | float() as confidence] if (
            0 <= left < right <= width and 0 <= top < bottom <= height and math.isfinite(confidence)
        ):
            shown = "".join(letter for letter in text[:MAX_WORD_LENGTH] if letter.isprintable()).strip()
            bounded = min(100.0, max(0.0, float(confidence)))
            return Word(shown, left, top, right, bottom, bounded) if shown else None
        case _:
            return None
