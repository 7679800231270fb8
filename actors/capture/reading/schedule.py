"""The pages of a session become a day: its date, its entries, and what a person should know. Pure.

A date stands above the entries it is for. Where pages name several, the session's day is taken if it has
entries, else the first that has; the entries of other days are left out, with a note. What stands below no
date belongs to the day that is taken.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby
from typing import Final

from actors.capture.reading.dates import Found, date_in
from actors.capture.reading.entries import Placed, entries_of
from actors.capture.reading.furniture import status_bar
from actors.capture.reading.joining import join
from actors.capture.reading.lines import Segment, segments_of
from actors.capture.reading.result import Entry, Reading
from actors.capture.reading.trouble import Unreadable
from actors.capture.reading.words import Page

MAX_ENTRIES: Final = 500
# more than fit on a screen that somebody can read
MAX_PAGE_ENTRIES: Final = 100
MAX_TEXT: Final = 300
# A heading says little more than its date.
MAX_WORDS_BESIDE_DATE: Final = 5
MONTH_FIRST: Final = frozenset(("eng",))


@dataclass(frozen=True, slots=True)
class Heading:
    found: Found
    segment: Segment


@dataclass(frozen=True, slots=True)
class Dated:
    entry: Entry
    date: date | None


def schedule_of(pages: Sequence[Page], *, day: date, languages: str) -> Reading:
    day_first = languages.split("+", maxsplit=1)[0] not in MONTH_FIRST
    headings: list[Heading] = []
    dated: list[list[Dated]] = []
    current: date | None = None
    for page in pages:
        found, entries = _read(page, day, day_first=day_first)
        dated.append([Dated(one.entry, _date_above(one, found) or current) for one in entries])
        headings += found
        current = dated[-1][-1].date if entries else _last(found) or current
    _check(pages, dated)
    chosen = _chosen(dated, headings, day)
    kept = [[one.entry for one in page if one.date in (None, chosen)] for page in dated]
    words = [word for page in pages for word in page.words]
    return Reading(
        schedule_date=chosen,
        entries=join(kept)[:MAX_ENTRIES],
        languages=languages,
        words=len(words),
        confidence=round(sum(word.confidence for word in words) / max(1, len(words)), 1),
        notes=list(_notes(dated, headings, chosen, languages)),
    )


def _read(page: Page, day: date, *, day_first: bool) -> tuple[list[Heading], list[Placed]]:
    segments = segments_of(page)
    bar = status_bar(segments, page)
    headings, rest = [], []
    for segment in segments:
        if segment in bar:
            continue
        found = date_in(segment.text, near=day, day_first=day_first)
        if found is None or not _is_heading(segment, found):
            rest.append(segment)
            continue
        headings.append(Heading(found, segment))
        if found.begin_at == 0 and (behind := segment.after(found.end_at)):
            rest.append(behind)
    placed = entries_of(rest, page.width)[:MAX_PAGE_ENTRIES]
    return headings, [replace(one, entry=_bounded(one.entry)) for one in placed]


def _is_heading(segment: Segment, found: Found) -> bool:
    """A date with few words around it, or one that begins a line, as in lists of several days."""
    beside = (segment.text[: found.begin_at] + segment.text[found.end_at :]).split()
    return len(beside) <= MAX_WORDS_BESIDE_DATE or found.begin_at == 0


def _date_above(one: Placed, headings: Iterable[Heading]) -> date | None:
    """The nearest above; of several beside each other the one that begins nearest."""
    above = [heading for heading in headings if heading.segment.top <= one.top + heading.segment.height // 2]
    if not above:
        return None
    lowest = max(above, key=lambda heading: heading.segment.top).segment
    beside = [heading for heading in above if heading.segment.is_beside(lowest)]
    return min(beside, key=lambda heading: abs(heading.segment.left - one.left)).found.date


def _last(headings: Sequence[Heading]) -> date | None:
    return headings[-1].found.date if headings else None


def _chosen(dated: Sequence[Sequence[Dated]], headings: Sequence[Heading], day: date) -> date:
    dates = [one.date for page in dated for one in page if one.date is not None]
    if day in dates:
        return day
    return dates[0] if dates else _last(headings) or day


def _check(pages: Sequence[Page], dated: Sequence[Sequence[Dated]]) -> None:
    if any(dated):
        return
    those = "the picture" if len(pages) == 1 else f"the {len(pages)} pictures"
    if not any(page.words for page in pages):
        raise Unreadable("NO_TEXT", f"no text was found in {those}")
    raise Unreadable("NO_ENTRIES", f"text was found in {those}, but no line with a time and a title")


def _notes(
    dated: Sequence[Sequence[Dated]], headings: Sequence[Heading], chosen: date, languages: str
) -> Iterable[str]:
    others = sorted(one.date for page in dated for one in page if one.date not in (None, chosen))
    for other, those in groupby(others):
        count = len(list(those))
        yield f"{count} {'entry' if count == 1 else 'entries'} of {other} left out"
    if any(heading.found.is_ambiguous and heading.found.date == chosen for heading in headings):
        yield f"the date is ambiguous; it was read as {chosen}, as is usual in the language {languages}"


def _bounded(entry: Entry) -> Entry:
    location = entry.location[:MAX_TEXT] if entry.location else None
    return Entry(entry.start, entry.end, entry.title[:MAX_TEXT], location)
