"""The same work for many things, several at a time."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from supervisor.errors import first_of

T = TypeVar("T")
R = TypeVar("R")
WORKERS: Final = 8


async def for_each(items: AsyncIterator[T], work: Callable[[T], Awaitable[None]]) -> None:
    """An error of one ends all of them."""
    give, take = anyio.create_memory_object_stream[T](WORKERS)

    async def worker(mine: MemoryObjectReceiveStream[T]) -> None:
        async with mine:
            async for item in mine:
                await work(item)

    async with anyio.create_task_group() as group:
        for _ in range(WORKERS):
            group.start_soon(worker, take.clone())
        take.close()
        async with give:
            async for item in items:
                await give.send(item)


async def side_by_side(items: Sequence[T], work: Callable[[T], Awaitable[R]], most: int) -> list[R]:
    """What came of each, in their order; `most` at a time. An error of one ends all of them."""
    done: dict[int, R] = {}
    room = anyio.CapacityLimiter(most)

    async def one(place: int, item: T) -> None:
        async with room:
            done[place] = await work(item)

    try:
        async with anyio.create_task_group() as group:
            for place, item in enumerate(items):
                group.start_soon(one, place, item)
    except ExceptionGroup as errors:
        raise first_of(errors) from None
    return [done[place] for place in range(len(items))]
