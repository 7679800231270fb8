"""Waiting for rows that others work on: a look that is cheap, and now and then a count for the progress.

Where the count is cheap, too, it alone is enough: how fast it falls tells when the end is near.
"""

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


def count_again_seconds(waited: float, done: int, left: int, took: float) -> float:
    """Until a quarter of what is left should be done: seldom while that is much, and often as the end comes.

    To count for as long as to wait is enough in any case.
    """
    pause = pause_seconds(waited)
    if done > 0:
        remaining = waited * left / done
        longest = COUNT_SECONDS if remaining > 4 * COUNT_SECONDS else LONGEST_SECONDS
        pause = jitter(min(longest, max(FIRST_SECONDS, remaining / 4)))
    return max(pause, took)


async def until_counted_out(count: Callable[[], Awaitable[int]]) -> None:
    """Returns when `count` says that nothing is left."""
    began = asked = boottime()
    first = left = await count()
    while left:
        now = boottime()
        await anyio.sleep(count_again_seconds(now - began, first - left, left, now - asked))
        asked = boottime()
        left = await count()
