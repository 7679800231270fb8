"""Dates as headings say them. Pure.

    date_in("Donnerstag, 19. November", near=date(2026, 11, 16), day_first=True)

A date without a year is in the year that puts it nearest to `near`, on the weekday that is said along where
one of them is. 03/04 is read by the custom of the language and marked as ambiguous.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            ("january", "jan", "januar", "jänner"), ("february", "feb", "februar"),
            ("march", "mar", "märz", "mär", "maerz", "marz"), ("april", "apr"), ("may", "mai"),
            ("june", "jun", "juni"), ("july", "jul", "juli"), ("august", "aug"),
            ("september", "sep", "sept"), ("october", "oct", "oktober", "okt"), ("november", "nov"),
            ("december", "dec", "dezember", "dez"),
        ),
        start=1,
    )
    for name in names
}  # fmt: skip
_WEEKDAYS: Final = {
    name: number
    for number, names in enumerate(
        (
            ("monday", "mon", "montag", "mo"), ("tuesday", "tue", "tues", "dienstag", "di"),
            ("wednesday", "wed", "mittwoch", "mi"), ("thursday", "thu", "thur", "thurs", "donnerstag", "do"),
            ("friday", "fri", "freitag", "fr"), ("saturday", "sat", "samstag", "sonnabend", "sa"),
            ("sunday", "sun", "sonntag", "so"),
        )
    )
    for name in names
}  # fmt: skip
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_WEEKDAY = "|".join(sorted(_WEEKDAYS, key=len, reverse=True))
_LEAD = rf"(?:\b(?P<weekday>{_WEEKDAY})\b[.,]*\s*(?:(?:den|the)\s+)?)?"
_END = r"(?![\d:])"
_DAY = r"(?P<day>[0-3]?\d)"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_SEP = r"\s?[-–/.]\s?"  # noqa: RUF001  (both dashes are read)
_FORMS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_LEAD}\b{_YEAR}(?:{_SEP}|\s)(?P<month>[01]?\d)(?:{_SEP}|\s){_DAY}{_END}",
        rf"{_YEAR}\s?年\s?(?P<month>[01]?\d)\s?月\s?{_DAY}\s?日",
        rf"{_LEAD}\b{_DAY}(?:st|nd|rd|th|\.)?\s?(?:of\s)?(?P<name>{_MONTH})\b\.?,?(?:\s?{_YEAR})?{_END}",
        rf"{_LEAD}\b(?P<name>{_MONTH})\b\.?\s?{_DAY}(?:st|nd|rd|th)?\b{_END}(?:[.,]?\s?{_YEAR}\b)?",
        rf"{_LEAD}\b(?P<one>[0-3]?\d)(?P<sep>\s?[./-]\s?)(?P<two>[0-3]?\d)(?P=sep)(?P<year>(?:20)?\d\d)\b{_END}",
        rf"\b(?P<weekday>{_WEEKDAY})\b[.,]*\s*(?P<one>[0-3]?\d)(?P<sep>[./])(?P<two>[01]?\d)\b(?![\d:])\.?",
        r"(?<![\d.:,])(?P<one>[0-3]?\d)(?P<sep>\.)\s?(?P<two>[01]?\d)\.(?!\d)",
        rf"^\W*(?P<weekday>{_WEEKDAY})\b[.,]*\s*{_DAY}(?:st|nd|rd|th|\.)?\W*$",
    )
)


@dataclass(frozen=True, slots=True)
class Found:
    """A date and the part of the text that says it."""

    date: date
    begin_at: int
    end_at: int
    is_ambiguous: bool = False


def date_in(text: str, *, near: date, day_first: bool) -> Found | None:
    for form in _FORMS:
        for match in form.finditer(text):
            if found := _found(match, near, day_first):
                return found
    return None


def _found(match: re.Match[str], near: date, day_first: bool) -> Found | None:
    said = {"weekday": None, "year": None, **match.groupdict()}
    weekday = _WEEKDAYS[said["weekday"].lower()] if said["weekday"] else None
    readings = [
        day for pairs in _readings(said, day_first) if (day := _nearest(pairs, said["year"], weekday, near))
    ]
    fitting = [day for day in readings if weekday is None or day.weekday() == weekday]
    if not readings or ("day" in said and said.get("name") is None and "month" not in said and not fitting):
        return None
    is_ambiguous = len(set(fitting or readings)) > 1
    return Found((fitting or readings)[0], match.start(), match.end(), is_ambiguous)


def _readings(said: dict[str, str | None], day_first: bool) -> list[list[tuple[int, int]]]:
    """The likeliest first; each is the months and days that are meant by it."""
    if said.get("one"):
        first, second = int(said["one"] or 0), int(said["two"] or 0)
        if (said["sep"] or "").strip() == ".":  # whoever writes points puts the day first
            return [[(second, first)]]
        pairs = [[(second, first)], [(first, second)]]
        return pairs if day_first else pairs[::-1]
    day = int(said["day"] or 0)
    if name := said.get("name"):
        return [[(_MONTHS[name.lower()], day)]]
    if month := said.get("month"):
        return [[(int(month), day)]]
    return [[(month, day) for month in range(1, 13)]]


def _nearest(pairs: list[tuple[int, int]], year: str | None, weekday: int | None, near: date) -> date | None:
    """Of the days that can be meant: on the right weekday if one is, and nearest to `near`."""
    days = list(_days(pairs, _years(year, near)))
    on_weekday = [day for day in days if day.weekday() == weekday]
    return min(on_weekday or days, key=lambda day: abs(day - near), default=None)


def _days(pairs: list[tuple[int, int]], years: list[int]) -> Iterator[date]:
    for year in years:
        for month, day in pairs:
            try:
                yield date(year, month, day)
            except ValueError:
                continue


def _years(said: str | None, near: date) -> list[int]:
    if said is None:
        last, next_ = (near - timedelta(days=366)).year, (near + timedelta(days=366)).year
        return list(range(last, next_ + 1))
    year = int(said)
    return [year if year >= 100 else 2000 + year]
