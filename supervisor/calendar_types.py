"""Times and dates that PostgreSQL has and Python's calendar has not: read as the nearest that it has.

The driver raises at such a value, and with it at the whole answer: one row would take a list away. Who may
write a column may write such a value (`timestamptz '200000-01-01'`, `infinity`, a date before Christ), so it
is made harmless where it is read. Costs 1 us a value; the answers of the runs' hot path have none.
"""

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_DAY: Final = date(2000, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)
# a day off the ends: in every time zone they are still in the calendar
FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)
LAST: Final = datetime(9999, 12, 31, tzinfo=UTC)
_FIRST: Final = (FIRST - _EPOCH) // _MICROSECOND
_LAST: Final = (LAST - _EPOCH) // _MICROSECOND

_ENDS: Final = {
    (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND: 2**63 - 1,
    (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND: -(2**63),
}
"""The ends of Python's calendar stand for never and always, as the driver has it too."""


def _read_time(value: tuple[int]) -> datetime:
    (microseconds,) = value
    if _FIRST <= microseconds <= _LAST:
        return _EPOCH + timedelta(microseconds=microseconds)
    return FIRST if microseconds < 0 else LAST


def parse_time(text: str) -> datetime:
    """A time out of the database's JSON."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return FIRST if text.endswith("BC") or text == "-infinity" else LAST


def _sent_time(value: datetime) -> tuple[int]:
    microseconds = (value.astimezone(UTC) - _EPOCH) // _MICROSECOND
    return (_ENDS.get(microseconds, microseconds),)


def _read_day(value: tuple[int]) -> date:
    return date.fromordinal(min(max(value[0] + _DAY, date.min.toordinal()), date.max.toordinal()))


def _sent_day(value: date) -> tuple[int]:
    return (value.toordinal() - _DAY,)


def tell_calendar(connection: Any) -> None:
    """To be called before tell_arrays, which it undoes. A driver without this door reads as ever."""
    with suppress(AttributeError):
        settings = connection._protocol.get_settings()  # noqa: SLF001
        settings.add_python_codec(
            1184, "timestamptz", "pg_catalog", [], "scalar", _sent_time, _read_time, "tuple"
        )
        settings.add_python_codec(1082, "date", "pg_catalog", [], "scalar", _sent_day, _read_day, "tuple")
