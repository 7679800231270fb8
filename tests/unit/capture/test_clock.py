"""Times as people write them and as recognition reads them."""

# ruff: noqa: RUF001  (dashes of all kinds are read)

import pytest

from actors.capture.reading.clock import times_at_end, times_at_start

READ = [
    ("09:05 Standup", "09:05", None, "Standup"),
    ("9:05 Standup", "09:05", None, "Standup"),
    ("9.05 Standup", "09:05", None, "Standup"),
    ("9 05 Standup", "09:05", None, "Standup"),
    ("0905 Standup", "09:05", None, "Standup"),
    ("9h05 Standup", "09:05", None, "Standup"),
    ("9.5 Standup", "09:30", None, "Standup"),
    ("9.75 Standup", "09:45", None, "Standup"),
    ("9.25 Standup", "09:25", None, "Standup"),
    ("9.25 – 10.5 Standup", "09:15", "10:30", "Standup"),
    ("9.25 – 10.30 Standup", "09:25", "10:30", "Standup"),
    ("10 – 10.5 Standup", "10:00", "10:30", "Standup"),
    ("09:00-10:30 Standup", "09:00", "10:30", "Standup"),
    ("09:00 — 10:30 Standup", "09:00", "10:30", "Standup"),
    ("09:00~10:30 Standup", "09:00", "10:30", "Standup"),
    ("9 to 10:30 Standup", "09:00", "10:30", "Standup"),
    ("from 9:00 until 10:30 Standup", "09:00", "10:30", "Standup"),
    ("08.30–10.00 Uhr Besprechung", "08:30", "10:00", "Besprechung"),
    ("9 bis 10 Uhr Besprechung", "09:00", "10:00", "Besprechung"),
    ("9 Uhr Besprechung", "09:00", None, "Besprechung"),
    ("09:30 10:00 Standup", "09:30", "10:00", "Standup"),
    ("7 30 – 8 15 Gym", "07:30", "08:15", "Gym"),
    ("930-1000 Gym", "09:30", "10:00", "Gym"),
    ("9am Gym", "09:00", None, "Gym"),
    ("9:05 a.m. Gym", "09:05", None, "Gym"),
    ("9:30p Gym", "21:30", None, "Gym"),
    ("12am Gym", "00:00", None, "Gym"),
    ("12pm Gym", "12:00", None, "Gym"),
    ("12:30 AM – 1 AM Gym", "00:30", "01:00", "Gym"),
    ("1–2pm Lunch", "13:00", "14:00", "Lunch"),
    ("11–1pm Lunch", "11:00", "13:00", "Lunch"),
    ("12-1pm Lunch", "12:00", "13:00", "Lunch"),
    ("11:30-12:30 PM Lunch", "11:30", "12:30", "Lunch"),
    ("11am-1 Lunch", "11:00", "13:00", "Lunch"),
    ("10pm-2 Night shift", "22:00", "02:00", "Night shift"),
    ("23:00-01:00 Night shift", "23:00", "01:00", "Night shift"),
    ("22:00–24:00 Night shift", "22:00", "24:00", "Night shift"),
    ("lO:3O Standup", "10:30", None, "Standup"),
    ("1O:00-ll:00 Standup", "10:00", "11:00", "Standup"),
    ("O9;30 Standup", "09:30", None, "Standup"),
    ("0B:S0 Standup", "08:50", None, "Standup"),
    ("11:60 Standup", "11:50", None, "Standup"),
    ("09: 30 – 10 : 00 Standup", "09:30", "10:00", "Standup"),
    ("2026-2130 Concert", "20:26", "21:30", "Concert"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "start", "end", "rest"), READ, ids=[row[0] for row in READ])
def test_a_time_is_read(text: str, start: str, end: str | None, rest: str) -> None:
    times = times_at_start(text)
    assert times is not None
    assert (times.start, times.end, text[times.end_at :].strip()) == (start, end, rest)


@pytest.mark.parametrize(
    "text",
    [
        "Standup", "", "9", "9 people", "2026 Budget", "16.11.2026", "10th floor", "3D print", "50% off",
        "5 € each",        "Sam is here", "So 09:00", "SO:BO", "25:00 X", "12:71", "24:01 X", "1:1 with Marc",
        "4.2 release", "305 Hall",        "12345 X", "+49 30 1234", "10:00:00.5x",
    ],
)  # fmt: skip
def test_what_is_no_time_is_none(text: str) -> None:
    assert times_at_start(text) is None


@pytest.mark.parametrize(
    ("text", "start", "end", "title"),
    [
        ("Standup 09:00-09:30", "09:00", "09:30", "Standup"),
        ("Standup, 9 am", "09:00", None, "Standup,"),
        ("Standup (10:00)", "10:00", None, "Standup ("),
    ],
)
def test_a_time_may_end_a_text(text: str, start: str, end: str | None, title: str) -> None:
    times = times_at_end(text)
    assert times is not None
    assert (times.start, times.end, text[: times.begin_at].strip()) == (start, end, title)


@pytest.mark.parametrize(
    "text",
    [
        "Lunch at 12:30 with Bob",
        "Release 4.2",
        "Release 4.25",
        "Math 101",
        "Room 9 05",
        "Year 2026",
        "Top 10",
    ],
)
def test_a_number_in_a_title_is_none(text: str) -> None:
    assert times_at_end(text) is None
