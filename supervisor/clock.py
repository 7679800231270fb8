"""The one source of time.

Everything that bounds an execution is measured with CLOCK_BOOTTIME: unlike the monotonic clock it goes on
while the machine is suspended, and unlike the wall clock nobody can step it. Instants of the database are
compared in the database only, by `clock_timestamp()`.
"""

import random
import time

import anyio


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def jitter(seconds: float, spread: float = 0.3) -> float:
    """Around `seconds`, so that replicas do not act in step."""
    return seconds * random.uniform(1 - spread, 1 + spread)  # noqa: S311  not a secret


class Clock:
    """The clock that parts are given; tests give another."""

    def now(self) -> float:
        return boottime()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(max(0.0, seconds))
