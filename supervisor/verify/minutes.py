"""The instants of a cron expression, found by looking at the minutes of the time zone one by one.

Slow and plain on purpose: it is what the scheduler is judged by, and shares nothing with it. A fixed time
that the clocks pass over fires at the transition, one that comes twice fires the first time; an expression
with a star in its minutes or hours, or with seconds, follows elapsed time.
"""

import calendar
from datetime import UTC, date, datetime
from functools import cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
DAY_MINUTES: Final = 1440
EPOCH: Final = date(1970, 1, 1).toordinal()


class Expression(NamedTuple):
    seconds: tuple[int, ...]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: str
    months: frozenset[int]
    weekdays: str
    fixed: bool

    def on(self, day: int) -> bool:
        """Whether it fires on this day, counted from 1970."""
        return _on(self.days, self.months, self.weekdays, day)

    def at(self, minute: int) -> bool:
        """Whether it fires in this minute of the local clock, counted from 1970."""
        day, rest = divmod(minute, DAY_MINUTES)
        return rest % 60 in self.minutes and rest // 60 in self.hours and self.on(day)


def read(cron: str) -> Expression:
    """ValueError where it is not understood."""
    fields = cron.upper().split()
    with_seconds = len(fields) == 6
    if not with_seconds:
        fields.insert(0, "0")
    if len(fields) != 6:
        raise ValueError(f"{cron!r} has not five fields")
    second, minute, hour, day, month, weekday = fields
    return Expression(
        seconds=tuple(sorted(_numbers(second, 0, 59))),
        minutes=frozenset(_numbers(minute, 0, 59)),
        hours=frozenset(_numbers(hour, 0, 23)),
        days=day,
        months=frozenset(_numbers(month, 1, 12, MONTHS)),
        weekdays=weekday,
        fixed=not with_seconds and not minute.startswith("*") and not hour.startswith("*"),
    )


def instants(cron: str, timezone: str, after: float, until: float) -> list[float]:
    """The instants in (after, until], seconds since 1970."""
    wanted, zone = read(cron), ZoneInfo(timezone)
    # a day earlier: what an overlap repeats was seen before it
    first, last = int(after // 60) - DAY_MINUTES, int(until // 60)
    found: list[float] = []
    seen = first + _offset(zone, first) - 1
    for hour in range(first, last + 1, 60):
        begins, ends = _offset(zone, hour), _offset(zone, hour + 59)
        if begins == ends and seen == hour + begins - 1 and not _hour_matters(wanted, hour + begins):
            seen += 60
            continue
        for minute in range(hour, min(hour + 60, last + 1)):
            local = minute + (begins if begins == ends else _offset(zone, minute))
            if wanted.fixed:
                hit = any(wanted.at(passed) for passed in range(seen + 1, local + 1))
            else:
                hit = wanted.at(local)
            seen = max(seen, local) if wanted.fixed else local
            if hit:
                found += [minute * 60.0 + second for second in wanted.seconds]
    return [instant for instant in found if after < instant <= until]


def _hour_matters(wanted: Expression, local: int) -> bool:
    """Whether any of the sixty minutes from `local` on can be one of its own."""
    ends = (local, local + 59)
    return any(end // 60 % 24 in wanted.hours and wanted.on(end // DAY_MINUTES) for end in ends)


def _offset(zone: ZoneInfo, minute: int) -> int:
    offset = datetime.fromtimestamp(minute * 60, UTC).astimezone(zone).utcoffset()
    return int(offset.total_seconds() // 60) if offset is not None else 0


@cache
def _on(days: str, months: frozenset[int], weekdays: str, number: int) -> bool:
    day = date.fromordinal(EPOCH + number)
    if day.month not in months:
        return False
    by_day = any(_by_day(term, day) for term in days.split(","))
    by_weekday = any(_by_weekday(term, day) for term in weekdays.split(","))
    if days.startswith("*") or weekdays.startswith("*"):
        return by_day and by_weekday
    return by_day or by_weekday


def _by_day(term: str, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if term.partition("/")[0] == "L":
        return day.day == last
    if term.partition("/")[0] == "LW":
        weekend = max(0, date(day.year, day.month, last).isoweekday() - 5)
        return day.day == last - weekend
    return day.day in _numbers(term, 1, 31)


def _by_weekday(term: str, day: date) -> bool:
    number = day.isoweekday() % 7
    if "#" in term:
        name, _, nth = term.partition("#")
        return _number(name, DAYS) % 7 == number and (day.day + 6) // 7 == int(nth)
    if term.endswith("L") and term[:-1].isdigit():
        last = calendar.monthrange(day.year, day.month)[1]
        return int(term[:-1]) % 7 == number and day.day + 7 > last
    return number in {one % 7 for one in _numbers(term, 0, 7, DAYS)}


def _numbers(field: str, least: int, most: int, names: tuple[str, ...] = ()) -> set[int]:
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        if span == "*":
            low, high = least, most
        else:
            begin, _, end = span.partition("-")
            low = _number(begin, names)
            high = _number(end, names) if end else (most if step else low)
        if not least <= low <= high <= most:
            raise ValueError(f"{term!r} is not between {least} and {most}")
        found.update(range(low, high + 1, int(step or 1)))
    return found


def _number(text: str, names: tuple[str, ...]) -> int:
    if text in names:
        return names.index(text) + (names is MONTHS)
    return int(text)
