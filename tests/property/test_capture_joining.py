"""A schedule that is seen through overlapping windows is put together again."""

from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.capture.reading import Entry, joining
from actors.capture.reading.joining import join
from tests.support.schedule_words import clock

TITLES = st.text(alphabet="abcdefghijklmnopqrstuvwxyz ", min_size=1, max_size=12).map(str.strip).filter(bool)


@st.composite
def days(draw: st.DrawFn) -> list[Entry]:
    """Starts differ: two entries that are alike in all things cannot be told from one that is seen twice."""
    starts = sorted(draw(st.sets(st.integers(0, 1400), min_size=1, max_size=14)))
    places = st.none() | st.sampled_from(["Room 1", "Hall"])
    return [Entry(clock(start), clock(start + 10), draw(TITLES), draw(places)) for start in starts]


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[Entry], list[list[Entry]]]:
    day = draw(days())
    pictures, begin, end = [], 0, 0
    while end < len(day):
        begin = draw(st.integers(begin, end))
        end = draw(st.integers(end + 1, len(day)))
        pictures.append(day[begin:end])
    return day, pictures


@given(windows())
def test_overlapping_windows_give_the_whole(seen: tuple[list[Entry], list[list[Entry]]]) -> None:
    day, pictures = seen
    assert join(pictures) == day


@given(days(), st.data())
def test_an_entry_that_was_cut_or_misread_at_the_edge_is_not_doubled(
    day: list[Entry], data: st.DataObject
) -> None:
    if len(day) < 3:
        return
    cut = data.draw(st.integers(2, len(day) - 1))
    last = replace(day[cut], location=None, end=None)
    assert join([[*day[:cut], last], day[cut - 1 :]]) == day
    garbled = replace(day[cut], title=day[cut].title + "x" * 40)
    assert join([[*day[:cut], garbled], day[cut - 1 :]]) == day


def test_alike_entries_that_lie_apart_stay() -> None:
    walk, work = Entry("12:00", "12:30", "Walk"), Entry("13:00", "14:00", "Work")
    assert join([[walk, work], [Entry("15:00", None, "Tea"), walk]]) == [
        walk,
        work,
        Entry("15:00", None, "Tea"),
        walk,
    ]


def test_the_same_picture_twice_is_one_schedule() -> None:
    day = [Entry("08:00", "09:00", "Standup"), Entry("09:00", "10:00", "Review")]
    assert join([day, day]) == day
    assert join([day, day[1:], day]) == day


def test_a_small_difference_in_reading_is_no_second_entry() -> None:
    assert join(
        [[Entry("08:00", "09:00", "Design review")], [Entry("08:00", "09:00", "Deslgn review", "Room 1")]]
    ) == [Entry("08:00", "09:00", "Design review", "Room 1")]


def test_pages_full_of_nearly_the_same_are_compared_in_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared came from strangers: however alike, each pair of titles is looked at once."""
    looks = 0
    compare = joining._are_alike_titles.__wrapped__

    @lru_cache(maxsize=20_000)
    def counted(one: str, other: str) -> bool:
        nonlocal looks
        looks += 1
        return compare(one, other)

    monkeypatch.setattr(joining, "_are_alike_titles", counted)
    page = [Entry("08:00", None, f"{'nearly the same ' * 20}{number % 7}") for number in range(100)]
    odd = [Entry("08:00", None, f"{number:03}" * 30) for number in range(3)]
    join([[*page, *odd], [*odd, *page], page, [*page, *odd]])
    assert looks < 2_000
