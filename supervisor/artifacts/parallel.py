"""The same work for many things, several at a time."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

T = TypeVar("T")
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
