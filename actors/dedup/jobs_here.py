"""Jobs that this replica works on itself: a run of the same replica that waits for one is told of its end.

A hint, as wake-ups are: the end is recorded a moment later, and a job that another replica works on is only
looked at. So whoever waits asks the database all the same, but need not ask often.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import UUID

import anyio

from actors.dedup.waiting import FIRST_SECONDS, LONGEST_SECONDS, pause_seconds
from supervisor.clock import jitter

_ENDS: Final[dict[UUID, asyncio.Event]] = {}


@contextmanager
def at_work(job: UUID) -> Iterator[None]:
    ended = _ENDS[job] = asyncio.Event()
    try:
        yield
    finally:
        # an attempt that was given up may end after the next one has begun
        if _ENDS.get(job) is ended:
            del _ENDS[job]
        ended.set()


async def pause(job: UUID, waited: float) -> None:
    """Until the next look is worth it."""
    ended = _ENDS.get(job)
    if ended is None:
        await anyio.sleep(pause_seconds(waited))
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(jitter(LONGEST_SECONDS)):
            await ended.wait()
            await anyio.sleep(FIRST_SECONDS)
