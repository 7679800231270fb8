"""Waiting for rows that others work on: a look that is cheap, and now and then a count for the progress."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from supervisor.clock import boottime, jitter

FIRST_SECONDS: Final = 0.01
LONGEST_SECONDS: Final = 1.0
LATE_SHARE: Final = 0.02
SOON_SECONDS: Final = 0.1
COUNT_SECONDS: Final = 5.0


def pause_seconds(waited: float) -> float:
    """Until the next look: an end is noticed late by a small share of what was waited for it."""
    return jitter(min(LONGEST_SECONDS, max(FIRST_SECONDS, LATE_SHARE * waited)))


async def until_none(left: Callable[[], Awaitable[bool]], count: Callable[[], Awaitable[None]]) -> None:
    """Returns when nothing is left; `count` is called every few seconds meanwhile."""
    began = boottime()
    count_at = began + SOON_SECONDS
    while await left():
        if boottime() >= count_at:
            await count()
            count_at = boottime() + COUNT_SECONDS
        await anyio.sleep(pause_seconds(boottime() - began))
