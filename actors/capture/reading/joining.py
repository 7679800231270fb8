"""Pictures of one schedule, scrolled a little each time, become one list. Pure.

The end of what is known is laid over the beginning of the next picture, as far as they are alike; the longest
such overlap is taken. An entry that the edge of the screen has cut may be missing, or be half of itself: the
last known and the first new one need not fit. Entries that are alike and lie apart are two entries.
"""

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

from actors.capture.reading.result import Entry

ALIKE: Final = 0.8
# So many entries at an edge may have been cut beyond recognition.
CUT: Final = 1
# How far back a picture can repeat what is known, and how much of a title tells it from another: comparing
# costs more than all the rest, and what is compared came from strangers.
REACH: Final = 120
COMPARED: Final = 80


def join(pictures: Sequence[Sequence[Entry]]) -> list[Entry]:
    joined: list[Entry] = []
    for entries in pictures:
        joined = _join(joined, entries)
    return joined


def _join(known: Sequence[Entry], new: Sequence[Entry]) -> list[Entry]:
    for length in range(min(len(known), len(new)), 0, -1):
        if _are_alike(known[-length:], new[:length]):
            return [*known[:-length], *_merged(known[-length:], new[:length]), *new[length:]]
    first = max(0, len(known) - REACH)
    if len(new) > 1 and any(
        _are_alike(known[at : at + len(new)], new) for at in range(first, len(known) - len(new) + 1)
    ):
        return list(known)
    return _join_cut(known, new) or [*known, *new]


def _join_cut(known: Sequence[Entry], new: Sequence[Entry]) -> list[Entry] | None:
    """With entries at the edges left out: those of the new picture's beginning, or of the known one's end."""
    for length in range(min(len(known), len(new)) - CUT, 0, -1):
        head, tail = known[: len(known) - CUT], new[CUT:]
        if _are_alike(known[-length:], tail[:length]):
            return [*known[:-length], *_merged(known[-length:], tail[:length]), *tail[length:]]
        if len(head) >= length and _are_alike(head[-length:], new[:length]):
            return [*head[:-length], *_merged(head[-length:], new[:length]), *new[length:]]
    return None


def _merged(known: Sequence[Entry], new: Sequence[Entry]) -> list[Entry]:
    """Of two views of an entry what each of them has: an edge may have cut one of them."""
    return [
        replace(old, end=old.end or other.end, location=old.location or other.location)
        for old, other in zip(known, new, strict=True)
    ]


def _are_alike(known: Sequence[Entry], new: Sequence[Entry]) -> bool:
    return all(is_alike(old, other) for old, other in zip(known, new, strict=True))


def is_alike(one: Entry, other: Entry) -> bool:
    """The same entry, perhaps read a little differently."""
    if one.start != other.start or (one.end and other.end and one.end != other.end):
        return False
    if one.title == other.title:
        return True
    return _are_alike_titles(one.title.casefold()[:COMPARED], other.title.casefold()[:COMPARED])


@lru_cache(maxsize=20_000)
def _are_alike_titles(one: str, other: str) -> bool:
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    return matcher.real_quick_ratio() >= ALIKE and matcher.quick_ratio() >= ALIKE and matcher.ratio() >= ALIKE
