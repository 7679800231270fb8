"""Looks from the beginning get a small share of the time, and what lies before the place is never lost."""

import pytest

from supervisor.skim import CHEAP_SECONDS, LONGEST_SECONDS, SHARE, Skim


def looked(skim: Skim[int], at: float, takes: float, place: int) -> int:
    begun_behind = skim.begin(at)
    skim.ended(at, at + takes, place)
    return begun_behind


def test_where_nothing_is_in_the_way_every_look_is_complete() -> None:
    skim = Skim(0)
    for number in range(10):
        assert looked(skim, number * CHEAP_SECONDS, CHEAP_SECONDS / 2, number) == 0


def test_between_two_complete_looks_each_begins_behind_the_last() -> None:
    skim = Skim(0)
    assert looked(skim, 1.0, 0.01, 7) == 0
    assert looked(skim, 1.02, 0.001, 9) == 7
    assert looked(skim, 1.03, 0.001, 12) == 9
    assert looked(skim, 1.01 + 0.01 / SHARE, 0.01, 5) == 0
    assert skim.place == 5


def test_complete_looks_take_their_share_of_the_time_and_no_more() -> None:
    skim, now, complete = Skim(0), 0.0, 0.0
    for place in range(1, 5000):
        behind = skim.begin(now)
        takes = 0.02 if behind == 0 else 0.001
        complete += takes if behind == 0 else 0.0
        skim.ended(now, now + takes, place)
        now += takes
    assert complete / now == pytest.approx(SHARE, rel=0.1)


def test_however_long_a_complete_look_takes_another_one_follows_within_a_second() -> None:
    skim = Skim(0)
    looked(skim, 0.0, 5.0, 7)
    assert skim.begin(5.0 + LONGEST_SECONDS) == 0


def test_nobody_rests_longer_than_until_the_next_complete_look() -> None:
    skim = Skim(0)
    looked(skim, 0.0, 0.01, 7)
    assert skim.patience(0.01, 3.0) == 3.0  # complete: whatever comes now is hinted
    looked(skim, 0.02, 0.001, 7)
    assert skim.patience(0.1, 3.0) == pytest.approx(0.01 / SHARE - 0.1)
    assert skim.patience(9.0, 3.0) == 0.0


def test_after_a_doubt_the_next_look_is_complete() -> None:
    skim = Skim(0)
    looked(skim, 0.0, 0.01, 7)
    skim.rewind()
    assert skim.begin(0.02) == 0
