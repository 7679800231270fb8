"""Words at their places become entries: layouts that are drawn here with words alone."""

from datetime import date

import pytest

from actors.capture.reading import Entry, Unreadable
from actors.capture.reading.schedule import schedule_of
from actors.capture.reading.words import MAX_WORDS, Page, Word, decode, encode

DAY = date(2026, 11, 16)
LETTER, HEIGHT = 12, 20


def page(*texts: tuple[int, int, str], width: int = 1000, height: int = 800) -> Page:
    """Texts by their left and top edge, in a face whose letters are all as wide."""
    words = []
    for left, top, text in texts:
        at = left
        for word in text.split(" "):
            if word:
                words.append(Word(word, at, top, at + LETTER * len(word) - 2, top + HEIGHT, 96.0))
            at += LETTER * (len(word) + 1)
    return Page(width, height, words)


def read(*pages: Page, languages: str = "eng", day: date = DAY) -> list[Entry]:
    return list(schedule_of(pages, day=day, languages=languages).entries)


STANDUP = Entry("09:00", "09:30", "Standup", "Room 4")
REVIEW = Entry("10:00", "11:00", "Review", "Main hall")


def test_a_line_says_all() -> None:
    lines = page((20, 20, "09:00-09:30 Standup @ Room 4"), (20, 60, "• 10:00-11:00 Review (Room 7)"))
    assert read(lines) == [STANDUP, Entry("10:00", "11:00", "Review", "Room 7")]


def test_numbers_and_weekdays_before_a_time() -> None:
    lines = page((20, 20, "1. 09:00-09:30 Standup"), (20, 60, "Mon 10:00-11:00 Review"))
    assert read(lines) == [Entry("09:00", "09:30", "Standup"), Entry("10:00", "11:00", "Review")]


def test_cards_with_the_time_first() -> None:
    assert read(page(
        (20, 20, "Today"),
        (20, 100, "09:00 - 09:30"), (20, 130, "Standup"), (20, 160, "Room 4"),
        (20, 240, "10:00 - 11:00"), (20, 270, "Review"), (20, 300, "Main hall"),
    )) == [STANDUP, REVIEW]  # fmt: skip


def test_cards_with_the_title_first() -> None:
    assert read(page(
        (20, 100, "Standup"), (20, 130, "09:00 - 09:30"), (20, 160, "Room 4"),
        (20, 240, "Review"), (20, 270, "10:00 - 11:00"), (20, 300, "Main hall"),
    )) == [STANDUP, REVIEW]  # fmt: skip


def test_cards_in_a_grid_are_read_in_the_order_of_their_times() -> None:
    rows = [
        ("09:00 - 09:30", "Standup"),
        ("09:30 - 10:00", "Tea"),
        ("10:00 - 11:00", "Review"),
        ("11:00 - 12:00", "Gym"),
    ]
    by_row = [
        (20 + 500 * (n % 2), 20 + 140 * (n // 2) + 30 * line, text)
        for n, row in enumerate(rows)
        for line, text in enumerate(row)
    ]
    by_column = [
        (20 + 500 * (n // 2), 20 + 140 * (n % 2) + 30 * line, text)
        for n, row in enumerate(rows)
        for line, text in enumerate(row)
    ]
    for layout in (by_row, by_column):
        assert [entry.title for entry in read(page(*layout))] == ["Standup", "Tea", "Review", "Gym"]


def test_the_end_below_the_start() -> None:
    assert read(page(
        (20, 100, "09:00"), (200, 100, "Standup"), (20, 126, "09:30"), (200, 126, "Room 4"),
        (20, 200, "10:00"), (200, 200, "Review"), (20, 226, "11:00"), (200, 226, "Main hall"),
    )) == [STANDUP, REVIEW]  # fmt: skip


def test_starts_alone_in_even_lines_are_no_pairs() -> None:
    lines = [(20, 100 + 40 * n, f"{9 + n:02}:00") for n in range(4)]
    titles = [(200, 100 + 40 * n, f"Lesson {n}") for n in range(4)]
    assert read(page(*lines, *titles)) == [Entry(f"{9 + n:02}:00", None, f"Lesson {n}") for n in range(4)]


def test_a_table_by_its_heads() -> None:
    assert read(page(
        (20, 20, "Room"), (220, 20, "Start"), (400, 20, "End"), (560, 20, "Subject"),
        (20, 60, "4"), (220, 60, "09:00"), (400, 60, "09:30"), (560, 60, "Standup"),
        (20, 100, "Main hall"), (220, 100, "10:00"), (400, 100, "11:00"), (560, 100, "Review"),
    )) == [Entry("09:00", "09:30", "Standup", "4"), REVIEW]  # fmt: skip


def test_a_table_without_heads_and_with_durations() -> None:
    assert read(page(
        (20, 20, "09:00-09:30"), (260, 20, "30 min"), (440, 20, "Standup"), (700, 20, "Room 4"),
        (20, 60, "10:00-11:00"), (260, 60, "1 h"), (440, 60, "Review"), (700, 60, "Main hall"),
    )) == [STANDUP, REVIEW]  # fmt: skip


def test_times_on_the_right() -> None:
    assert read(page(
        (20, 20, "Standup"), (600, 20, "09:00-09:30"),
        (20, 80, "Review"), (600, 80, "10:00-11:00"),
    )) == [Entry("09:00", "09:30", "Standup"), Entry("10:00", "11:00", "Review")]  # fmt: skip


def test_a_title_that_was_broken_goes_on_in_the_next_line() -> None:
    long = "A very long title that goes on until the edge of the screen and"
    assert read(page((20, 20, "09:00-09:30"), (200, 20, long), (200, 46, "beyond"), (200, 72, "Room 4"))) == [
        Entry("09:00", "09:30", f"{long} beyond", "Room 4")
    ]


def test_a_title_may_begin_with_a_time() -> None:
    assert read(page((20, 20, "09:00-09:30"), (260, 20, "10:30 call preparation"))) == [
        Entry("09:00", "09:30", "10:30 call preparation")
    ]


@pytest.mark.parametrize(
    "bar",
    [
        [(40, 10, "9:41"), (800, 10, "5G"), (880, 10, "87%")],
        [(40, 10, "Carrier LTE"), (480, 10, "9:41"), (900, 10, "100%")],
    ],
)
def test_the_clock_of_a_telephone_is_no_entry(bar: list[tuple[int, int, str]]) -> None:
    screen = page(*bar, (40, 60, "Schedule"), (40, 200, "10:00-11:00 Review @ Main hall"), height=2000)
    assert read(screen) == [REVIEW]


def test_the_first_line_of_a_cut_screen_is_an_entry() -> None:
    assert read(page((40, 10, "09:00-09:30 Standup @ Room 4"), height=2000)) == [STANDUP]


def test_the_heading_is_the_date() -> None:
    reading = schedule_of(
        [page((20, 20, "Thursday, November 19"), (20, 80, "10:00-11:00 Review @ Main hall"))],
        day=DAY,
        languages="eng",
    )
    assert (reading.schedule_date, list(reading.entries)) == (date(2026, 11, 19), [REVIEW])


def test_an_ambiguous_date_is_read_by_the_language_and_noted() -> None:
    seen = [page((20, 20, "03/04/2026"), (20, 80, "10:00-11:00 Review"))]
    english, german = (schedule_of(seen, day=DAY, languages=name) for name in ("eng", "deu"))
    assert (english.schedule_date, german.schedule_date) == (date(2026, 3, 4), date(2026, 4, 3))
    assert ["ambiguous" in note for note in (*english.notes, *german.notes)] == [True, True]


def test_of_several_days_the_session_s_is_taken_and_the_others_are_noted() -> None:
    seen = [
        page((20, 20, "Sunday, November 15"), (20, 60, "08:00-08:30 Run"), (20, 140, "Monday, November 16"),
             (20, 180, "09:00-09:30 Standup @ Room 4")),
        page((20, 20, "09:00-09:30 Standup @ Room 4"), (20, 60, "10:00-11:00 Review @ Main hall"),
             (20, 140, "Tuesday, November 17"), (20, 180, "09:00-09:30 Standup")),
    ]  # fmt: skip
    reading = schedule_of(seen, day=DAY, languages="eng")
    assert (reading.schedule_date, list(reading.entries)) == (DAY, [STANDUP, REVIEW])
    assert list(reading.notes) == [
        "1 entry of 2026-11-15 left out",
        "1 entry of 2026-11-17 left out",
    ]


def test_days_in_columns() -> None:
    week = page(
        (20, 20, "Mon 16"), (520, 20, "Tue 17"),
        (20, 80, "09:00-09:30 Standup"), (520, 80, "10:00-11:00 Review"),
    )  # fmt: skip
    assert read(week) == [Entry("09:00", "09:30", "Standup")]
    assert read(week, day=date(2026, 11, 17)) == [Entry("10:00", "11:00", "Review")]


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ([page()], "no text was found in the picture"),
        ([page(), page()], "no text was found in the 2 pictures"),
        ([page((20, 20, "Standup"))], "text was found in the picture, but no line with a time and a title"),
        ([page((20, 20, "09:00"))], "text was found in the picture, but no line with a time and a title"),
    ],
)
def test_nothing_to_read_has_its_reason(pages: list[Page], reason: str) -> None:
    with pytest.raises(Unreadable) as refused:
        schedule_of(pages, day=DAY, languages="eng")
    assert str(refused.value) == reason


def test_words_survive_the_way_out_of_a_chamber() -> None:
    seen = page((20, 20, "09:00-09:30 Frühstück"))
    assert decode(encode(seen)) == seen


@pytest.mark.parametrize(
    "said",
    [
        b"", b"[]", b"\xff", b'{"width": 1}', b'{"width": -1, "height": 5, "words": []}', b"[" * 100_000,
        b'{"width": 10, "height": 10, "words": [' + b",".join([b"1"] * (MAX_WORDS + 1)) + b"]}",
    ],
)  # fmt: skip
def test_nonsense_from_a_chamber_is_no_page(said: bytes) -> None:
    assert decode(said) is None


def test_senseless_words_from_a_chamber_are_left_out() -> None:
    rows = (
        '["ok", 0, 0, 5, 5, 90]', '["ok", 5, 0, 0, 5, 90]', '["ok", 0, 0, 50, 5, 90]',
        '["ok", 0, 0, 5, 5, NaN]', '["\\u0007", 0, 0, 5, 5, 90]', "7", '["ok", "0", 0, 5, 5, 90]',
    )  # fmt: skip
    seen = decode(f'{{"width": 10, "height": 10, "words": [{", ".join(rows)}]}}'.encode())
    assert seen == Page(10, 10, [Word("ok", 0, 0, 5, 5, 90.0)])
