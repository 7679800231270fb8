"""Anchors: the times that entries hang on, found in the segments of a page. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from actors.capture.reading.clock import Times, times_at_end, times_at_start
from actors.capture.reading.lines import Segment
from actors.capture.reading.places import is_duration

# A bullet, also where it was read as a letter, a number in a list, or a weekday.
_LEAD: Final = re.compile(
    r"(?:[^\w]+|[^\W\d]\s|\d\d?[.)]\s|(?:mon?|tue?s?|wed|thu(?:rs?)?|fri?|sat?|sun|di|mi|do|so)[.,]*\s)\s*",
    re.IGNORECASE,
)
# In heights of the text: a start and an end in cells of their own are not further apart.
NEAR_CELLS: Final = 8
_OPEN_END: Final = re.compile(r"^\W*$")


@dataclass(frozen=True, slots=True)
class Anchor:
    times: Times
    time: Segment
    """The words that say the time."""
    title: Segment | None
    """What stands in the same segment."""
    leads: bool = True
    """The time stands before the title."""
    second: "Anchor | None" = None
    """The end that stands below the start."""

    @property
    def start(self) -> str:
        return self.times.start

    @property
    def end(self) -> str | None:
        return self.second.start if self.second else self.times.end

    @property
    def is_bare(self) -> bool:
        return self.title is None

    @property
    def left(self) -> int:
        return self.time.left if self.leads or self.title is None else self.title.left

    @property
    def right(self) -> int:
        return self.time.right

    @property
    def top(self) -> int:
        return self.time.top

    @property
    def bottom(self) -> int:
        return self.second.time.bottom if self.second else self.time.bottom


def anchor_of(segment: Segment) -> Anchor | None:
    text = segment.text
    for offset in _offsets(text):
        if times := times_at_start(text[offset:]):
            begin, end = offset + times.begin_at, offset + times.end_at
            time, rest = segment.between(begin, end), segment.after(end)
            if time is not None:
                is_open = rest is not None and _OPEN_END.match(rest.text)
                return Anchor(times, time, None if is_open else rest)
    if times := times_at_end(text):
        time, rest = segment.between(times.begin_at, times.end_at), segment.before(times.begin_at)
        if time is not None and rest is not None:
            return Anchor(times, time, rest, leads=False)
    return None


def _offsets(text: str) -> Iterable[int]:
    yield 0
    if lead := _LEAD.match(text):
        yield lead.end()


def find_anchors(segments: Sequence[Segment]) -> tuple[list[Anchor], list[Segment]]:
    """The anchors, and the segments that are none."""
    found: list[tuple[Segment, Anchor | None]] = [
        (segment, anchor_of(segment)) for segment in _with_ends_joined(segments)
    ]
    anchors, others = [], []
    for segment, anchor in found:
        if anchor is None or _is_title_of_another(segment, anchor, found):
            others.append(segment)
        else:
            anchors.append(anchor)
    plain = [anchor for anchor in anchors if anchor.times.is_plain]
    kept = [anchor for anchor in anchors if anchor in plain or not plain or _is_in_line(anchor, plain)]
    others += [_whole(anchor) for anchor in anchors if anchor not in kept]
    return kept, others


def _with_ends_joined(segments: Sequence[Segment]) -> list[Segment]:
    """A start and an end in neighbouring cells become one segment."""
    joined: list[Segment] = []
    taken: set[int] = set()
    for segment in segments:
        if id(segment) in taken:
            continue
        following = _next_on_line(segment, segments)
        if following is not None and _is_start_of(segment, following):
            taken.add(id(following))
            joined.append(Segment([*segment.words, *following.words]))
        else:
            joined.append(segment)
    return [segment for segment in joined if id(segment) not in taken]


def _is_start_of(segment: Segment, following: Segment) -> bool:
    anchor = anchor_of(segment)
    if anchor is None or not anchor.is_bare or anchor.end is not None:
        return False
    if following.left - segment.right > NEAR_CELLS * segment.height:
        return False
    both = times_at_start(Segment([*anchor.time.words, *following.words]).text)
    return both is not None and both.end is not None


def _next_on_line(segment: Segment, segments: Sequence[Segment]) -> Segment | None:
    following = [other for other in segments if other.left >= segment.right and other.is_beside(segment)]
    return min(following, key=lambda other: other.left, default=None)


def _is_title_of_another(
    segment: Segment, anchor: Anchor, found: Sequence[tuple[Segment, Anchor | None]]
) -> bool:
    """A title may begin with a number or a time, and 1 h may be how long: then the time stands before it."""
    if anchor.is_bare and not is_duration(segment.text):
        return False
    before = [pair for pair in found if pair[0].right <= segment.left and pair[0].is_beside(segment)]
    _, last = max(before, key=lambda pair: pair[0].right, default=(segment, None))
    return last is not None and last.is_bare


def _is_in_line(anchor: Anchor, plain: Sequence[Anchor]) -> bool:
    """What is less plainly a time is believed where it stands in line with times."""
    near = anchor.time.height
    return anchor.end is not None or any(
        abs(anchor.time.left - other.time.left) <= near or abs(anchor.time.right - other.time.right) <= near
        for other in plain
    )


def _whole(anchor: Anchor) -> Segment:
    parts = (anchor.time, anchor.title) if anchor.leads else (anchor.title, anchor.time)
    return Segment([word for part in parts if part is not None for word in part.words])
