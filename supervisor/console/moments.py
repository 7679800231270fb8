"""Times for people: relative text, the absolute time behind it. Ages are measured by the database's clock."""

from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup, escape

from supervisor.calendar_types import parse_time

SCALES: Final = (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))


def moment_of(value: datetime | str | None) -> datetime | None:
    """A database's time, also out of JSON."""
    return parse_time(value) if isinstance(value, str) else value


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    seconds = max(0.0, seconds)
    if 0 < seconds < 0.1:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    for unit, size, smaller, part in SCALES:
        if seconds >= size:
            rest = int(seconds % size // part)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{int(seconds)} s"


def relative(then: datetime, now: datetime) -> str:
    seconds = (now - then).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{_coarse(seconds)} ago" if seconds > 0 else f"in {_coarse(-seconds)}"


def _coarse(seconds: float) -> str:
    return f"{int(seconds)} s" if seconds < 10 else duration(seconds)


def absolute(then: datetime) -> str:
    return f"{then.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def time_element(value: datetime | str | None, now: datetime, missing: str = "") -> Markup:
    """`<time>`: how long ago or in how long, when exactly on hover; the page's script keeps it current."""
    then = moment_of(value)
    if then is None:
        return Markup('<span class="none">{}</span>').format(missing) if missing else Markup()
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        then.astimezone(UTC).isoformat(), absolute(then), relative(then, now)
    )


def lasting_element(value: datetime | str | None, now: datetime) -> Markup:
    """`<time>` for what goes on: for how long it has."""
    then = moment_of(value)
    if then is None:
        return Markup()
    return Markup('<time data-lasting datetime="{}" title="since {}">{}</time>').format(
        then.astimezone(UTC).isoformat(), absolute(then), _coarse(max(0.0, (now - then).total_seconds()))
    )


def clock_element(value: datetime | str | None) -> Markup:
    """The time of day to the millisecond, for steps that follow each other closely."""
    then = moment_of(value)
    if then is None:
        return Markup()
    then = then.astimezone(UTC)
    shown = f"{then:%H:%M:%S}.{then.microsecond // 1000:03d}"
    return Markup('<time data-clock datetime="{}" title="{}">{}</time>').format(
        then.isoformat(), absolute(then), escape(shown)
    )
