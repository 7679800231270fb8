"""Times of day as people write them and as recognition reads them. Pure.

    times_at_start("9-10:30am Standup")  ->  09:00, 10:30, and where the rest begins

Known are 09:05, 9.05, 9 05, 0905, 9h05, 9 Uhr, 9:05 am, and ranges of them. What is ambiguous is decided so:

* One digit behind a point is a part of an hour: 9.5 is 09:30, for a lost zero (9.05) is rarer than a half
  hour. Two digits are minutes, as in 9.30 Uhr; 9.75 can only be a quarter to ten, and a part of an hour makes
  9.25 beside it a quarter past.
* A bare hour is a time only in a range or with what makes it one: 9-10, 9 am, 9 Uhr.
* Four digits that could be a year of our days are a time only in a range: 2026 is not 20:26.
* The half of the day that is said once holds for both ends where that keeps them in order: 1-2pm, 11-1pm.
* An end before its start is left as it is written: it is after midnight.

Letters that look like digits are taken for them only inside of a time that has real digits: lO:3O, 1O:00.
"""

# ruff: noqa: RUF001  (dashes and quotes of all kinds are what is read here)

import re
from dataclasses import dataclass, replace
from typing import Final

ALIKE: Final = str.maketrans({
    "O": "0", "o": "0", "Q": "0", "D": "0", "l": "1", "I": "1", "|": "1", "i": "1", "!": "1",
    "Z": "2", "z": "2", "S": "5", "s": "5", "B": "8",
})  # fmt: skip
LAST_MINUTE: Final = 24 * 60
NOON: Final = 12 * 60
YEARS: Final = range(1900, 2100)
FRACTIONS: Final = {"5": 30, "25": 15, "75": 45}
MERIDIEM_HOURS: Final = range(13)

_D = r"[0-9OoQDlI|i!ZzSsB]"
_HALF = r"(?:\s?(?P<half{n}>[AaPp]\.?\s?[Mm]\b\.?)|(?<=\d)(?P<letter{n}>[aApP])\b)"
_HOURS = r"\s?(?P<unit{n}>Uhr|uhr|UHR|hrs?|h|o['’]?clock)\b\.?"
_CLOCK = (
    r"(?:"
    rf"(?P<h{{n}}>{_D}{{{{1,2}}}})(?P<sign{{n}}>\s?[:;]\s?|[hH]|[.,'’·])(?P<m{{n}}>{_D}{{{{2}}}})(?![0-9])"
    r"|(?P<hour{n}>\d{{1,2}})[.,](?P<part{n}>5|0)(?![0-9])"
    r"|(?P<h_{n}>\d{{1,2}})\s(?P<m_{n}>[0-5]\d)(?![0-9:.,;])"
    rf"|(?P<digits{{n}}>{_D}{{{{3,4}}}})(?![0-9])"
    r"|(?P<bare{n}>\d{{1,2}})(?![0-9])"
    r")"
    rf"(?:{_HALF}|{_HOURS})?"
)
_TO = r"\s*(?:[-–—−‐‑~=→>»]+|\b(?:to|bis|until|till|til|and|und)\b)\s*"
_BEFORE = r"(?:(?:von|from|ab|at|um|between|zwischen)\s+)?"
# Neither a longer number, a date (16.11.2026), a share (50 %) nor a word that begins with digits (3D, 10th).
_AFTER = r"(?![0-9A-Za-zÀ-ÿ%€$£°]|[.,:;/]\d|\s?[%€])"
_EXPRESSION = re.compile(
    rf"{_BEFORE}(?<![0-9A-Za-zÀ-ÿ.,:/+#-])(?P<first>{_CLOCK.format(n=1)})"
    rf"(?:(?P<to>{_TO}|\s+)(?P<second>{_CLOCK.format(n=2)}))?{_AFTER}"
)
_ALONE = re.compile(rf"{_BEFORE}(?<![0-9A-Za-zÀ-ÿ.,:/+#-])(?P<first>{_CLOCK.format(n=1)}){_AFTER}")


@dataclass(frozen=True, slots=True)
class Times:
    """A start, perhaps an end, and the part of the text that says so."""

    start: str
    end: str | None
    begin_at: int
    end_at: int
    is_plain: bool = True
    """Written as times are; a number that merely could be one is not."""


@dataclass(frozen=True, slots=True)
class _Clock:
    hour: int
    minute: int
    half: str | None
    """'a', 'p' or nothing."""
    is_sure: bool
    """A time even where nothing else says so."""
    is_clear: bool
    """Hour and minute with a sign between: two of them side by side are a range."""
    is_fraction: bool = False
    is_plain: bool = False
    """Nothing but a time is written so."""

    @property
    def minutes(self) -> int:
        return self.hour * 60 + self.minute


def times_at_start(text: str) -> Times | None:
    """The time or range with which the text begins."""
    return _times(text, 0)


def times_at_end(text: str) -> Times | None:
    """The time or range with which the text ends, where words stand before it; only if it is plainly one."""
    for start in re.finditer(r"(?<=[\s(,|])\S", text):
        found = _times(text, start.start())
        if found and found.is_plain and not text[found.end_at :].strip(" )|"):
            return found
    return None


def _times(text: str, at: int) -> Times | None:
    if whole := _EXPRESSION.match(text, at):
        first = _clock(whole, 1)
        second = _clock(whole, 2) if whole["second"] else None
        if first and second and _is_range(whole["to"], first, second):
            return _range(first, second, at, whole.end())
    if (alone := _ALONE.match(text, at)) and (clock := _clock(alone, 1)) and clock.is_sure:
        return _range(clock, None, at, alone.end())
    return None


def _is_range(to: str, first: _Clock, second: _Clock) -> bool:
    """Without a sign between them two times are a range only where both are unmistakable."""
    return bool(to.strip()) or (first.is_clear and second.is_clear)


def _range(first: _Clock, second: _Clock | None, begin_at: int, end_at: int) -> Times | None:
    if second is None:
        start = _in_half(first, first.half)
        return Times(_text(start), None, begin_at, end_at, first.is_plain) if start <= LAST_MINUTE else None
    if first.is_fraction != second.is_fraction:
        first, second = _fraction_beside(first, second), _fraction_beside(second, first)
    start, end = _ends(first, second)
    if start > LAST_MINUTE or end > LAST_MINUTE:
        return None
    return Times(_text(start), _text(end), begin_at, end_at)


def _fraction_beside(clock: _Clock, other: _Clock) -> _Clock:
    """9.25 beside an unmistakable part of an hour is one too."""
    if other.is_fraction and clock.minute == 25 and not clock.is_fraction and clock.is_clear:
        return _Clock(clock.hour, 15, clock.half, clock.is_sure, clock.is_clear, is_fraction=True)
    return clock


def _ends(first: _Clock, second: _Clock) -> tuple[int, int]:
    if first.half is None and second.half is not None and first.hour in MERIDIEM_HOURS:
        end = _in_half(second, second.half)
        same, other = _in_half(first, second.half), _in_half(first, _other(second.half))
        return (same if same <= end else other), end
    if second.half is None and first.half is not None and second.hour in MERIDIEM_HOURS:
        start = _in_half(first, first.half)
        same, other = _in_half(second, first.half), _in_half(second, _other(first.half))
        return start, (same if same > start else other)
    return _in_half(first, first.half), _in_half(second, second.half)


def _other(half: str) -> str:
    return "a" if half == "p" else "p"


def _in_half(clock: _Clock, half: str | None) -> int:
    """Minutes since midnight; an hour above twelve needs no half."""
    if half is None or clock.hour not in MERIDIEM_HOURS:
        return clock.minutes
    return clock.minutes % NOON + (NOON if half == "p" else 0)


def _clock(match: re.Match[str], n: int) -> _Clock | None:
    half = (match[f"half{n}"] or match[f"letter{n}"] or "")[:1].lower() or None
    named = half is not None or match[f"unit{n}"] is not None
    clock = _of_form(match, n, half, named=named)
    is_plain = named or (match[f"sign{n}"] or "").strip() in (":", ";", "h", "H")
    return replace(clock, is_plain=is_plain) if clock else None


def _of_form(match: re.Match[str], n: int, half: str | None, *, named: bool) -> _Clock | None:
    if match[f"h{n}"]:
        return _minutes(match[f"h{n}"], match[f"m{n}"], half)
    if match[f"hour{n}"]:
        minute = FRACTIONS.get(match[f"part{n}"], 0)
        return _checked(int(match[f"hour{n}"]), minute, half, is_sure=True, is_clear=True, is_fraction=True)
    if match[f"h_{n}"]:
        return _checked(int(match[f"h_{n}"]), int(match[f"m_{n}"]), half, is_sure=True)
    if match[f"digits{n}"]:
        return _compact(match[f"digits{n}"], half, named=named)
    return _checked(int(match[f"bare{n}"]), 0, half, is_sure=named)


def _minutes(hour: str, minute: str, half: str | None) -> _Clock | None:
    if not any(letter.isdigit() for letter in hour + minute):
        return None
    numbers = _number(hour), _number(minute)
    if numbers[1] == 75:  # no minute: a part of an hour
        return _checked(numbers[0], 45, half, is_sure=True, is_clear=True, is_fraction=True)
    if 60 <= numbers[1] < 70:  # no minute either: a five whose opening was lost
        numbers = numbers[0], numbers[1] - 10
    return _checked(*numbers, half, is_sure=True, is_clear=True)


def _compact(digits: str, half: str | None, *, named: bool) -> _Clock | None:
    if sum(letter.isdigit() for letter in digits) < len(digits) - 1:
        return None
    number = _number(digits)
    sure = named or (len(digits) == 4 and digits.isdigit() and number not in YEARS)
    return _checked(number // 100, number % 100, half, is_sure=sure)


def _checked(
    hour: int,
    minute: int,
    half: str | None,
    *,
    is_sure: bool,
    is_clear: bool = False,
    is_fraction: bool = False,
) -> _Clock | None:
    if minute > 59 or hour * 60 + minute > LAST_MINUTE:
        return None
    return _Clock(hour, minute, half, is_sure, is_clear, is_fraction)


def _number(digits: str) -> int:
    return int(digits.translate(ALIKE))


def _text(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"
