"""Cron instants, and which of them are fired. Pure: every instant is UTC and now is a parameter.

Instants come from (expression, time zone). Where the clocks go forward, what falls into the gap fires once
at the transition; where they go back, it fires once, the first time. An expression with a wildcard in its
minutes or hours follows elapsed time instead, as Debian's cron does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

Missed = Literal["skip", "latest", "all"]

ON_TIME: Final = timedelta(seconds=60)
COUNT_LIMIT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Firing:
    """What one look at a schedule decided: these fire, those were skipped, look again at `next_at`."""

    fire: tuple[datetime, ...]
    skipped: tuple[datetime, ...]
    next_at: datetime | None


def complaints(cron: str, timezone: str, now: datetime) -> list[str]:
    """What is wrong with a schedule, for a person to read."""
    found = []
    try:
        _zone(timezone)
    except ValueError as error:
        found.append(str(error))
        timezone = "UTC"
    try:
        if next(_after(cron, timezone, now), None) is None:
            found.append(f"the schedule {cron!r} never fires")
    except CronSimError as error:
        found.append(
            f"the schedule {cron!r} is not a cron expression (minute hour day month weekday): {error}"
        )
    return found


def instants(
    cron: str, timezone: str, after: datetime, until: datetime, limit: int = COUNT_LIMIT
) -> list[datetime]:
    """The instants in (after, until], the last `limit` of them."""
    window = timedelta(hours=1)
    while True:
        start = max(after, until - window)
        found = list(takewhile(lambda instant: instant <= until, _after(cron, timezone, start)))
        if len(found) >= limit or start == after:
            return found[-limit:]
        window *= 2


def decide(
    cron: str, timezone: str, missed: Missed, missed_limit: int, fired_until: datetime, now: datetime
) -> Firing:
    """What is late by more than a minute was missed: nobody led, or everything was down."""
    passed = instants(cron, timezone, fired_until, now)
    on_time = [instant for instant in passed if now - instant <= ON_TIME]
    late = passed[: len(passed) - len(on_time)]
    keep = 0 if missed == "skip" else missed_limit if missed == "all" else 0 if on_time else 1
    made_up = late[len(late) - min(keep, len(late)) :]
    return Firing(
        fire=(*made_up, *on_time),
        skipped=tuple(late[: len(late) - len(made_up)]),
        next_at=next(_after(cron, timezone, now), None),
    )


def _zone(timezone: str) -> ZoneInfo:
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{timezone!r} is not a time zone; write it like Europe/Berlin") from None


def _after(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    """Ascending, each once. In an overlap the library may go back over what is past; that is passed over."""
    last = after
    for local in CronSim(cron, after.astimezone(_zone(timezone))):
        instant = local.astimezone(UTC)
        if instant > last:
            last = instant
            yield instant
