"""Cron instants over changes of the clocks and leap days, and what becomes of missed ones."""

from datetime import UTC, datetime, timedelta

import pytest

from supervisor.schedule import complaints, decide, instants

NEW_YORK, BERLIN, LORD_HOWE, APIA = "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# (cron, zone, after, until, expected instants), all in UTC. The clocks of New York go forward on 2026-03-08
# at 07:00 and back on 2026-11-01 at 06:00; of Berlin on 2026-03-29 at 01:00 and on 2026-10-25 at 01:00.
PUBLISHED = [
    # in the gap: once, at the transition
    (
        "30 2 * * *",
        NEW_YORK,
        "2026-03-07T12:00",
        "2026-03-09T12:00",
        ["2026-03-08T07:00", "2026-03-09T06:30"],
    ),
    ("0 2 * * *", NEW_YORK, "2026-03-07T12:00", "2026-03-08T12:00", ["2026-03-08T07:00"]),
    ("30 2 * * *", BERLIN, "2026-03-28T12:00", "2026-03-30T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
    # several of one job in the gap are one
    ("15,45 2 * * *", BERLIN, "2026-03-28T12:00", "2026-03-29T12:00", ["2026-03-29T01:00"]),
    # outside the gap nothing changes
    ("30 3 * * *", NEW_YORK, "2026-03-07T12:00", "2026-03-08T12:00", ["2026-03-08T07:30"]),
    # in the overlap: once, the first time
    (
        "30 1 * * *",
        NEW_YORK,
        "2026-10-31T12:00",
        "2026-11-02T12:00",
        ["2026-11-01T05:30", "2026-11-02T06:30"],
    ),
    ("30 2 * * *", BERLIN, "2026-10-24T12:00", "2026-10-26T12:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
    # looked at in the second pass of the overlap: it is over
    ("30 1 * * *", NEW_YORK, "2026-11-01T06:20", "2026-11-01T12:00", []),
    # wildcards follow elapsed time: every hour is every hour
    (
        "30 * * * *",
        NEW_YORK,
        "2026-11-01T05:00",
        "2026-11-01T08:00",
        ["2026-11-01T05:30", "2026-11-01T06:30", "2026-11-01T07:30"],
    ),
    ("0 * * * *", BERLIN, "2026-03-28T23:30", "2026-03-29T02:30", [f"2026-03-29T0{h}:00" for h in (0, 1, 2)]),
    # half an hour of daylight saving: 2026-10-04 at 15:30 UTC 02:00 becomes 02:30
    ("15 2 * * *", LORD_HOWE, "2026-10-03T12:00", "2026-10-04T12:00", ["2026-10-03T15:30"]),
    # a whole day that never was: Samoa went from 2011-12-29 to 2011-12-31
    (
        "0 12 * * *",
        APIA,
        "2011-12-29T12:00",
        "2011-12-30T23:00",
        ["2011-12-29T22:00", "2011-12-30T10:00", "2011-12-30T22:00"],
    ),
    # leap days
    ("0 0 29 2 *", "UTC", "2026-01-01T00:00", "2033-01-01T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
    ("0 0 29 2 *", "UTC", "2096-01-01T00:00", "2105-01-01T00:00", ["2096-02-29T00:00", "2104-02-29T00:00"]),
    ("0 0 31 * *", "UTC", "2026-01-30T00:00", "2026-05-30T00:00", ["2026-01-31T00:00", "2026-03-31T00:00"]),
    ("0 0 L 2 *", "UTC", "2027-01-01T00:00", "2029-01-01T00:00", ["2027-02-28T00:00", "2028-02-29T00:00"]),
    # a zone that never changes
    ("0 12 * * MON", "Asia/Kolkata", "2026-11-15T00:00", "2026-11-17T00:00", ["2026-11-16T06:30"]),
]


@pytest.mark.parametrize(("cron", "zone", "after", "until", "expected"), PUBLISHED)
def test_published_cases(cron: str, zone: str, after: str, until: str, expected: list[str]) -> None:
    assert instants(cron, zone, utc(after), utc(until)) == [utc(text) for text in expected]


@pytest.mark.parametrize("zone", [NEW_YORK, BERLIN, LORD_HOWE, "UTC"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "*/7 * * * *", "15 1,2,3 * * *", "0 */2 * * *"])
def test_looking_often_or_seldom_makes_no_difference(cron: str, zone: str) -> None:
    """Wherever a leader stops and the next one begins, each instant comes once."""
    begin, end = utc("2026-10-24T20:00"), utc("2026-10-26T04:00")
    whole = instants(cron, zone, begin, end)
    pieces: list[datetime] = []
    at = begin
    while at < end:
        step = min(at + timedelta(minutes=13), end)
        pieces += instants(cron, zone, at, step)
        at = step
    assert pieces == whole


def test_a_long_absence_keeps_the_last() -> None:
    begin, end = utc("2025-01-01T00:00"), utc("2026-01-01T00:00")
    last = instants("* * * * *", "UTC", begin, end, limit=3)
    assert last == [end - timedelta(minutes=2), end - timedelta(minutes=1), end]


NOON = utc("2026-06-01T12:00:30")


@pytest.mark.parametrize(
    ("policy", "fired"),
    [("skip", ["12:00"]), ("latest", ["12:00"]), ("all", ["11:58", "11:59", "12:00"])],
)
def test_missed_policies_with_one_on_time(policy: str, fired: list[str]) -> None:
    firing = decide("* * * * *", "UTC", policy, 2, utc("2026-06-01T11:55"), NOON)  # type: ignore[arg-type]
    assert [f"{instant:%H:%M}" for instant in firing.fire] == fired
    assert len(firing.fire) + len(firing.skipped) == 5
    assert firing.next_at == utc("2026-06-01T12:01")


@pytest.mark.parametrize(
    ("policy", "fired"), [("skip", []), ("latest", ["11:00"]), ("all", ["10:00", "11:00"])]
)
def test_missed_policies_with_none_on_time(policy: str, fired: list[str]) -> None:
    now = utc("2026-06-01T11:30")
    firing = decide("0 * * * *", "UTC", policy, 100, utc("2026-06-01T09:30"), now)  # type: ignore[arg-type]
    assert [f"{instant:%H:%M}" for instant in firing.fire] == fired
    assert len(firing.fire) + len(firing.skipped) == 2


def test_the_watermark_is_not_fired_again() -> None:
    at = utc("2026-06-01T12:00")
    assert decide("* * * * *", "UTC", "latest", 1, at, at + timedelta(seconds=59)).fire == ()


@pytest.mark.parametrize(
    ("cron", "zone", "word"),
    [
        ("61 * * * *", "UTC", "not a cron expression"),
        ("* * * *", "UTC", "not a cron expression"),
        ("", "UTC", "not a cron expression"),
        ("0 0 31 2 *", "UTC", "never fires|not a cron"),
        ("* * * * *", "Mars/Olympus", "not a time zone"),
        ("* * * * *", "../../etc/passwd", "not a time zone"),
        ("* * * * *", "", "not a time zone"),
    ],
)
def test_complaints(cron: str, zone: str, word: str) -> None:
    found = complaints(cron, zone, NOON)
    assert len(found) == 1
    assert any(part in found[0] for part in word.split("|"))
