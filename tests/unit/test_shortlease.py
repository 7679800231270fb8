"""The short lease can put off a decision, for at most its time to live, and nothing else (R003-28, H29)."""

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.shortlease import TTL_SECONDS, UNASKED_SECONDS, ShortLeases
from tests.support.fake_clock import FakeClock

Says = Callable[[Sequence[int]], Sequence[int]]


class Redis:
    """Stands for `Hints`: `says` answers which of the runs are taken."""

    def __init__(self, says: Says) -> None:
        self.says = says
        self.asked: list[list[int]] = []
        self.dropped: list[list[int]] = []

    async def take(self, run_ids: Sequence[int], _token: str, seconds: float) -> frozenset[int]:
        assert seconds == TTL_SECONDS
        self.asked.append(list(run_ids))
        return frozenset(self.says(run_ids))

    def drop(self, run_ids: Sequence[int], _token: str) -> None:
        self.dropped.append(list(run_ids))


def leases(says: Says) -> tuple[ShortLeases, Redis, FakeClock]:
    redis, clock = Redis(says), FakeClock()
    return ShortLeases(redis, clock), redis, clock  # type: ignore[arg-type]  # what it uses of Hints


async def later(short: ShortLeases, run_ids: Sequence[int]) -> frozenset[int]:
    async with short.hold(run_ids) as found:
        return found


async def test_without_redis_nothing_is_put_off() -> None:
    assert await later(ShortLeases(), [1, 2]) == frozenset()


async def test_what_is_taken_is_left_and_what_is_not_is_given_back_after_the_decision() -> None:
    short, redis, _ = leases(lambda ids: [2])
    async with short.hold([1, 2, 3]) as found:
        assert found == {2}
        assert redis.dropped == []
    assert redis.dropped == [[1, 3]]


async def test_a_failed_decision_gives_back_too() -> None:
    short, redis, _ = leases(lambda ids: [])
    with pytest.raises(RuntimeError):
        async with short.hold([1]):
            raise RuntimeError
    assert redis.dropped == [[1]]


async def test_a_redis_that_always_says_taken_is_believed_for_the_time_to_live_and_then_not_asked() -> None:
    short, redis, clock = leases(lambda ids: ids)
    assert await later(short, [1, 2]) == {1, 2}
    clock.pass_seconds(TTL_SECONDS - 0.01)
    assert await later(short, [1, 2]) == {1, 2}
    assert short.patience(1.0) == pytest.approx(0.01), "the next look comes when the time is over"
    assert short.patience(1.0) == 1.0, "once"
    clock.pass_seconds(0.01)
    asked = len(redis.asked)
    assert await later(short, [1, 2]) == frozenset()
    assert await later(short, [3, 4]) == frozenset(), "a lie about others costs nothing more"
    assert len(redis.asked) == asked
    clock.pass_seconds(UNASKED_SECONDS + 0.01)
    assert await later(short, [5]) == {5}, "later it may be honest again"


async def test_an_answer_that_comes_after_the_time_is_over_puts_nothing_off() -> None:
    short, redis, clock = leases(lambda ids: ids)
    assert await later(short, [1]) == {1}

    def slowly(ids: Sequence[int]) -> Sequence[int]:
        clock.pass_seconds(TTL_SECONDS)
        return ids

    redis.says = slowly
    clock.pass_seconds(TTL_SECONDS / 2)
    assert await later(short, [1]) == frozenset()


@settings(deadline=None)
@given(seed=st.integers(), tick=st.floats(0.01, 1.0))
async def test_whatever_redis_says_every_run_is_decided_within_the_time_to_live(
    seed: int, tick: float
) -> None:
    """A leader with room for two, twenty runs, and a Redis that says what it likes."""
    says = random.Random(seed)  # noqa: S311  replayable
    short, _, clock = leases(lambda ids: [one for one in ids if says.random() < 0.9])
    waiting, began, put_off = list(range(20)), clock.now(), 0.0
    while waiting:
        batch, looked = waiting[:2], clock.now()
        left = await later(short, batch)
        waiting = [one for one in waiting if one not in batch or one in left]
        clock.pass_seconds(short.patience(tick))
        put_off += clock.now() - looked if left else 0
    assert put_off <= TTL_SECONDS + 1e-6
    assert clock.now() - began <= TTL_SECONDS + 20 * tick
