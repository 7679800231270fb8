"""When a scheduled job fires next, for people: in its own zone and in UTC."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from supervisor import schedule
from supervisor.cli import output

SHOWN: Final = 3


def next_fires(job: Mapping[str, Any], now: datetime, count: int = SHOWN) -> list[dict[str, str]]:
    """None where it has no schedule, or the schedule cannot be read any more."""
    if job["cron"] is None or not job["enabled"] or schedule.complaints(job["cron"], job["timezone"], now):
        return []
    zone = ZoneInfo(job["timezone"])
    found, instant = [], now
    for _ in range(count):
        following = schedule.decide(job["cron"], job["timezone"], "skip", 1, instant, instant).next_at
        if following is None:
            break
        instant = following
        found.append(
            {
                "local": instant.astimezone(zone).isoformat(),
                "utc": instant.astimezone(UTC).isoformat(),
            }
        )
    return found


def say_fires(job: Mapping[str, Any]) -> None:
    for number, fire in enumerate(job["next_fires"]):
        head = "next fires at " if number == 0 else "         then "
        output.say(f"{head}{fire['local']} {job['timezone']} = {fire['utc']}")
