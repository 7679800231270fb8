"""The budget of bytes read for thumbnails, shared by all replicas through one row of the database.

Whoever wants to read moves the row's next free moment by what the reading takes of the rate, and waits until
the moment he found there. Without a rate nobody waits and nothing is asked.
"""

from typing import Final

import anyio

from supervisor.asking import ask_one
from supervisor.clock import boottime
from supervisor.store import Store

BUCKET: Final = "thumbnail_io_global"
RATE_SECONDS: Final = 5.0
LARGEST_BYTES: Final = 64 << 20
"""More is not read for one thumbnail: a long video is looked into, not read through."""


class IoBudget:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._rate = 0.0
        self._rate_until = 0.0

    async def spend(self, size_bytes: int) -> None:
        """Wait until so many bytes may be read."""
        rate = await self._current_rate()
        if rate <= 0:
            return
        cost = round(1000 * min(size_bytes, LARGEST_BYTES) / rate)
        wait_ms: int = await ask_one(self._store, "reserve_io", BUCKET, cost)
        if wait_ms > 0:
            await anyio.sleep(wait_ms / 1000)

    async def _current_rate(self) -> float:
        if boottime() >= self._rate_until:
            self._rate = await ask_one(self._store, "read_thumbnail_rate") or 0.0
            self._rate_until = boottime() + RATE_SECONDS
        return self._rate
