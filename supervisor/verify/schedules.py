"""K13: a schedule fired at its instants, each once, and said what it skipped."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfoNotFoundError

from supervisor.verify import minutes
from supervisor.verify.records import Schedule, Skip
from supervisor.verify.report import Finding

# a look counts ten thousand instants at most: what lies before so many was not looked at
COUNTED: Final = 8_900


def check(schedule: Schedule) -> Iterator[Finding]:
    """Raises ValueError where the expression or the zone is not understood."""
    try:
        expected = minutes.instants(schedule.cron, schedule.timezone, schedule.since, schedule.until)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"{schedule.timezone!r} is not a time zone") from error
    fired = [instant for instant in schedule.fired if instant > schedule.since]
    twice = sorted({instant for instant in fired if fired.count(instant) > 1}) if _repeats(fired) else []
    wanted = set(expected)
    yield from _told(schedule, "fired twice", twice)
    yield from _told(schedule, "fired, and it is not one of its instants", sorted(set(fired) - wanted))
    missing = sorted(wanted.difference(fired))
    if schedule.skips is None:
        missing = missing if schedule.missed == "all" else []
    else:
        missing = [instant for instant in missing if not _skipped(instant, schedule.skips)]
    yield from _told(schedule, "neither fired nor recorded as skipped", missing)


def _repeats(fired: list[float]) -> bool:
    return len(set(fired)) < len(fired)


def _skipped(instant: float, skips: tuple[Skip, ...]) -> bool:
    return any(instant <= skip.last and (instant >= skip.first or skip.instants >= COUNTED) for skip in skips)


def _told(schedule: Schedule, text: str, wrong: list[float]) -> Iterator[Finding]:
    if wrong:
        at = ", ".join(datetime.fromtimestamp(one, UTC).isoformat() for one in wrong[:5])
        yield Finding(
            "K13",
            f"job {schedule.job}: {len(wrong)} instants {text}",
            (f"{schedule.cron!r} in {schedule.timezone}, missed={schedule.missed}", at),
        )
