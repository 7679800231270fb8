"""Whatever is written as a time is read as that time, and nothing that is read makes the reader fail."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from actors.capture.reading.clock import times_at_end, times_at_start
from actors.capture.reading.dates import date_in
from actors.capture.reading.places import clean_place, split_place
from tests.support import schedule_words as words
from tests.support.schedules import DAY

MINUTES = st.integers(0, 24 * 60 - 1)
LOOKS_LIKE = {"0": "OoQ", "1": "lI|", "5": "S", "8": "B", "2": "Z"}


@given(
    MINUTES,
    st.none() | MINUTES,
    st.sampled_from([words.plain, words.tight, words.dotted, words.french, words.twelve]),
)
def test_every_writing_is_read_as_it_was_meant(
    start: int, end: int | None, write: Callable[[str, str | None], str]
) -> None:
    first, last = words.clock(start), words.clock(end) if end is not None else None
    text = f"{write(first, last)} Standup"
    times = times_at_start(text)
    assert times is not None
    assert (times.start, times.end) == (first, last)
    assert text[times.end_at :].strip() == "Standup"


@given(MINUTES, MINUTES)
def test_half_of_the_day_said_once(start: int, length: int) -> None:
    """1-2pm: what is meant is in order and within half a day."""
    end = min(start + 1 + length % 700, 24 * 60 - 1)
    if end <= start:
        return
    first, last = words.clock(start), words.clock(end)
    times = times_at_start(words.shared(first, last))
    assert times is not None
    assert (times.start, times.end) == (first, last)


@given(MINUTES, st.data())
def test_letters_that_look_like_digits(minute: int, data: st.DataObject) -> None:
    written = words.clock(minute)
    places = [at for at, digit in enumerate(written) if digit in LOOKS_LIKE]
    changed = data.draw(st.sets(st.sampled_from(places), max_size=3) if places else st.just(set()))
    text = "".join(
        data.draw(st.sampled_from(LOOKS_LIKE[letter])) if at in changed else letter
        for at, letter in enumerate(written)
    )
    if any(letter.isdigit() for letter in text):
        times = times_at_start(text)
        assert times is not None
        assert times.start == written


@given(st.text(max_size=60) | st.text(alphabet="0123456789OlSB:.;,-\u2013 apmhU@()|", max_size=40))
def test_no_text_makes_it_fail(text: str) -> None:
    for read in (times_at_start, times_at_end):
        times = read(text)
        if times is not None:
            assert 0 <= times.begin_at < times.end_at <= len(text)
            for time in filter(None, (times.start, times.end)):
                assert "00:00" <= time <= "24:00"
                assert time[3:] < "60"
    date_in(text, near=DAY, day_first=True)
    split_place(text)
    clean_place(text) if text else None
