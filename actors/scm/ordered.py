"""Work done side by side, its results handed on in the order of the work.

    async with in_order(jobs, ahead=3) as results:
        async for result in results:
            ...

A job is called with a function that takes its results one by one; at most `ahead` jobs run, and each waits
when a few of its results were not taken yet. The first failure, and leaving the block, end them all.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from typing import TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from actors.scm.process import unwrapped

__all__ = ["Job", "in_order"]

T = TypeVar("T")
Job = Callable[[Callable[[T], Awaitable[None]]], Awaitable[None]]

RESULTS_AHEAD = 4


@asynccontextmanager
async def in_order(jobs: Iterable[Job[T]], ahead: int) -> AsyncIterator[AsyncIterator[T]]:
    lines, queue = anyio.create_memory_object_stream[MemoryObjectReceiveStream[T]](float("inf"))
    free = anyio.Semaphore(ahead)
    with unwrapped(), ExitStack() as streams:  # a task that is cancelled before it begins closes nothing
        streams.enter_context(lines)
        streams.enter_context(queue)
        async with anyio.create_task_group() as group:

            async def start() -> None:
                with lines:
                    for job in jobs:
                        await free.acquire()
                        send, receive = anyio.create_memory_object_stream[T](RESULTS_AHEAD)
                        streams.enter_context(send)
                        lines.send_nowait(streams.enter_context(receive))
                        group.start_soon(_run, job, send)

            group.start_soon(start)
            results = _results(queue, free)
            try:
                yield results
            finally:
                await results.aclose()
                group.cancel_scope.cancel()


async def _run(job: Job[T], send: MemoryObjectSendStream[T]) -> None:
    with send:
        await job(send.send)


async def _results(
    queue: MemoryObjectReceiveStream[MemoryObjectReceiveStream[T]], free: anyio.Semaphore
) -> AsyncGenerator[T, None]:
    async for line in queue:
        with line:
            async for result in line:
                yield result
        free.release()
