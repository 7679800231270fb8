"""Work side by side: its results in order, and never more of them ahead than there is room for."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import pytest
from anyio.lowlevel import checkpoint

from actors.scm.git_batches import SLICE, _slice_size
from actors.scm.ordered import in_order

Take = Callable[[int], Awaitable[None]]


async def count(first: int, made: list[int], take: Take) -> None:
    for number in range(first, first + 5):
        made.append(number)
        await take(number)


async def settled() -> None:
    for _ in range(50):
        await checkpoint()


async def test_results_come_in_the_order_of_the_jobs() -> None:
    made: list[int] = []
    async with in_order([partial(count, first, made) for first in (0, 5, 10)], ahead=2) as results:
        assert [result async for result in results] == list(range(15))
    assert sorted(made) == list(range(15))


async def test_a_job_waits_where_there_is_no_room_for_its_next_result() -> None:
    made: list[int] = []
    async with in_order([partial(count, 0, made)], ahead=1, weigh=lambda _: 3, room=6) as results:
        await settled()
        assert made == [0, 1, 2]
        assert await anext(results) == 0
        await settled()
        assert made == [0, 1, 2, 3]


async def test_what_is_larger_than_the_room_goes_alone() -> None:
    made: list[int] = []
    async with in_order([partial(count, 0, made)], ahead=1, weigh=lambda _: 100, room=6) as results:
        await settled()
        assert made == [0, 1]
        assert [result async for result in results] == list(range(5))


async def test_a_failure_ends_all() -> None:
    async def fail(take: Take) -> None:
        await take(1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        async with in_order([fail, lambda _: anyio.sleep_forever()], ahead=2) as results:
            assert [result async for result in results] == [1]


@pytest.mark.parametrize("commits", [0, 1, 99, 101, SLICE, SLICE + 1, 5000, 100_001])
@pytest.mark.parametrize("ahead", [1, 2, 4])
def test_slices_are_whole_batches_and_about_alike(commits: int, ahead: int) -> None:
    size = _slice_size(commits, 100, ahead)
    slices = -(-commits // size)
    assert size % 100 == 0
    assert 100 <= size < SLICE + 100
    assert slices <= -(-commits // (SLICE * ahead)) * ahead or commits == 0
