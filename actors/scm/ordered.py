"""Work done side by side, its results handed on in the order of the work.

    async with in_order(jobs, ahead=3) as results:
        async for result in results:
            ...

A job is called with a function that takes its results one by one; at most `ahead` jobs run, and each waits
when its results that were not taken yet leave no room for the next one. The first failure, and leaving the
block, end them all.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from typing import Final, Generic, NamedTuple, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from actors.scm.process import unwrapped

__all__ = ["Job", "in_order"]

T = TypeVar("T")
Job = Callable[[Callable[[T], Awaitable[None]]], Awaitable[None]]

RESULTS_AHEAD: Final = 4


class Room:
    """For the results of one job: so much by weight, or a single one that is larger."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._free = most
        self._changed = anyio.Event()

    async def enter(self, weight: int) -> None:
        needed = min(weight, self._most)
        while self._free < needed:
            self._changed = anyio.Event()
            await self._changed.wait()
        self._free -= needed

    def leave(self, weight: int) -> None:
        self._free += min(weight, self._most)
        self._changed.set()


class Line(NamedTuple, Generic[T]):
    """The results of one job that wait to be taken."""

    results: MemoryObjectReceiveStream[T]
    room: Room


@asynccontextmanager
async def in_order(
    jobs: Iterable[Job[T]],
    ahead: int,
    *,
    weigh: Callable[[T], int] = lambda _: 1,
    room: int = RESULTS_AHEAD,
) -> AsyncIterator[AsyncIterator[T]]:
    lines, queue = anyio.create_memory_object_stream[Line[T]](float("inf"))
    free = anyio.Semaphore(ahead)
    with unwrapped(), ExitStack() as streams:  # a task that is cancelled before it begins closes nothing
        streams.enter_context(lines)
        streams.enter_context(queue)
        async with anyio.create_task_group() as group:

            async def start() -> None:
                with lines:
                    for job in jobs:
                        await free.acquire()
                        send, receive = anyio.create_memory_object_stream[T](float("inf"))
                        streams.enter_context(send)
                        line = Line(streams.enter_context(receive), Room(room))
                        lines.send_nowait(line)
                        group.start_soon(_run, job, send, line.room, weigh)

            group.start_soon(start)
            results = _results(queue, free, weigh)
            try:
                yield results
            finally:
                await results.aclose()
                group.cancel_scope.cancel()


async def _run(job: Job[T], send: MemoryObjectSendStream[T], room: Room, weigh: Callable[[T], int]) -> None:
    async def take(result: T) -> None:
        await room.enter(weigh(result))
        await send.send(result)

    with send:
        await job(take)


async def _results(
    queue: MemoryObjectReceiveStream[Line[T]], free: anyio.Semaphore, weigh: Callable[[T], int]
) -> AsyncGenerator[T, None]:
    async for line in queue:
        with line.results:
            async for result in line.results:
                line.room.leave(weigh(result))
                yield result
        free.release()
