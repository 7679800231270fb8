"""How much a store may hold. Our own puts count at once, those of others when it is counted anew."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio

from supervisor.artifacts.errors import QuotaExceeded

FRESH_SECONDS: Final = 60.0
# of a long count at most this share of the time
EFFORT: Final = 20


class Quota:
    def __init__(self, limit_bytes: int | None, count: Callable[[], Awaitable[int]]) -> None:
        self._limit = limit_bytes
        self._count = count
        self._used = 0
        self._counted = float("-inf")
        self._fresh_seconds = FRESH_SECONDS
        self._lock = anyio.Lock()

    @property
    def bounded(self) -> bool:
        return self._limit is not None

    @asynccontextmanager
    async def room(self, key: str, size: int) -> AsyncIterator[None]:
        """Room for that many bytes more, given back when they were not stored; or QuotaExceeded."""
        if self._limit is None:
            yield
            return
        async with self._lock:
            await self._look()
            if self._used + size > self._limit:
                raise QuotaExceeded(key=key, what=f"{self._used} of {self._limit} bytes are used")
            self._used += size
        try:
            yield
        except BaseException:
            self._used -= size
            raise

    async def _look(self) -> None:
        begun = time.monotonic()
        if begun - self._counted <= self._fresh_seconds:
            return
        self._used = await self._count()
        self._counted = time.monotonic()
        self._fresh_seconds = max(FRESH_SECONDS, EFFORT * (self._counted - begun))
