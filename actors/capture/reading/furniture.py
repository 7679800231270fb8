"""What stands on a page beside its entries: the clock of a telephone, the heads of a table. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from actors.capture.reading.anchors import anchor_of
from actors.capture.reading.lines import Segment
from actors.capture.reading.words import Page

Role = Literal["time", "title", "place", "other"]

STATUS_SHARE: Final = 0.06
PORTRAIT: Final = 1.4
CENTRE: Final = 0.08
# In heights of the text: cells that are not below their head begin so near to it.
NEAR_HEAD: Final = 3
_STATUS: Final = re.compile(
    r"^(?:[\W_]*|[2345]g[+e]?|lte|wi-?fi|\d{1,3}\s?%|\d{1,3}|\w{1,2})$", re.IGNORECASE
)
_HEADS: Final[Mapping[Role, frozenset[str]]] = {
    "time": frozenset((
        "time", "start", "end", "from", "to", "begin", "when", "zeit", "uhrzeit", "beginn", "ende", "von",
        "bis", "wann",
    )),
    "title": frozenset((
        "event", "title", "what", "subject", "activity", "session", "topic", "meeting", "course", "class",
        "description", "task", "titel", "thema", "termin", "was", "fach", "veranstaltung", "betreff",
        "programm", "beschreibung",
    )),
    "place": frozenset(("room", "location", "where", "place", "venue", "raum", "ort", "wo", "saal")),
    "other": frozenset((
        "speaker", "host", "with", "who", "duration", "notes", "teacher", "status", "wer", "dauer", "notiz",
        "notizen", "lehrer", "referent",
    )),
}  # fmt: skip
_ROLES: Final = {word: role for role, words in _HEADS.items() for word in words}


def status_bar(segments: Sequence[Segment], page: Page) -> list[Segment]:
    """The top line of a telephone's screen, known by a time of its own and the signs around it."""
    if not segments or page.height < PORTRAIT * page.width:
        return []
    top = min(segments, key=lambda segment: segment.top)
    line = [segment for segment in segments if segment.is_beside(top)]
    if any(segment.bottom > STATUS_SHARE * page.height for segment in line):
        return []
    return line if any(_is_clock(segment, line, page) for segment in line) else []


def _is_clock(segment: Segment, line: Sequence[Segment], page: Page) -> bool:
    anchor = anchor_of(segment)
    if anchor is None or anchor.end is not None:
        return False
    words = [word for other in line for word in other.words if word not in anchor.time.words]
    centred = abs((anchor.time.left + anchor.time.right) / 2 - page.width / 2) < CENTRE * page.width
    return centred or all(_STATUS.match(word.text) for word in words)


def heads_of(lines: Sequence[Sequence[Segment]]) -> list[tuple[Segment, Role]]:
    """The first line in which at least two cells are names of columns."""
    for line in lines:
        roles = [(segment, _ROLES.get(segment.text.strip(" :.").lower())) for segment in line]
        named = [(segment, role) for segment, role in roles if role is not None]
        if len(named) >= 2:
            return [(segment, role or "other") for segment, role in roles]
    return []


def role_of(segment: Segment, heads: Sequence[tuple[Segment, Role]]) -> Role | None:
    """By the head that the cell stands under; None where there is none above it."""
    head, role = min(heads, key=lambda head: abs(head[0].left - segment.left))
    is_under = min(head.right, segment.right) > max(head.left, segment.left)
    return role if is_under or abs(head.left - segment.left) <= NEAR_HEAD * segment.height else None
