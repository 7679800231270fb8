"""Dates as headings say them."""

from datetime import date

import pytest

from actors.capture.reading.dates import date_in

NEAR = date(2026, 11, 16)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-19", "2026-11-19"),
        ("19.11.2026", "2026-11-19"),
        ("19. 11. 2026", "2026-11-19"),
        ("Montag, den 16.11.2026", "2026-11-16"),
        ("Mo 16.11.", "2026-11-16"),
        ("19 Nov 2026", "2026-11-19"),
        ("November 19", "2026-11-19"),
        ("Thu, Nov 19", "2026-11-19"),
        ("Schedule for Thursday, November 19th", "2026-11-19"),
        ("Donnerstag, 19. November", "2026-11-19"),
        ("Dienstag, 3. März 2026", "2026-03-03"),
        ("2026年11月19日", "2026-11-19"),
        ("13/04/2026", "2026-04-13"),
        ("Thu 19", "2026-11-19"),
        ("January 2", "2027-01-02"),
        ("Fri, Jan 2", "2026-01-02"),
        ("Feb 29, 2028", "2028-02-29"),
    ],
)
def test_a_date_is_read(text: str, expected: str) -> None:
    found = date_in(text, near=NEAR, day_first=False)
    assert found is not None
    assert (found.date.isoformat(), found.is_ambiguous) == (expected, False)


@pytest.mark.parametrize(
    ("text", "day_first", "expected", "ambiguous"),
    [
        ("03/04/2026", False, "2026-03-04", True),
        ("03/04/2026", True, "2026-04-03", True),
        ("Fri 03/04/2026", False, "2026-04-03", False),
        ("03.04.2026", False, "2026-04-03", False),
        ("04/04/2026", True, "2026-04-04", False),
    ],
)
def test_custom_or_weekday_tell_day_from_month(
    text: str, day_first: bool, expected: str, ambiguous: bool
) -> None:
    found = date_in(text, near=NEAR, day_first=day_first)
    assert found is not None
    assert (found.date.isoformat(), found.is_ambiguous) == (expected, ambiguous)


@pytest.mark.parametrize(
    "text",
    [
        "31.02.2026",
        "9.30",
        "09.30 - 10.00 Uhr",
        "Maybe 5",
        "10:00 Standup",
        "Sun 9:00",
        "Do 5 things",
        "Wed 40",
    ],
)
def test_what_is_no_date_is_none(text: str) -> None:
    assert date_in(text, near=NEAR, day_first=True) is None
