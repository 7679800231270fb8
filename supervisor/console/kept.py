"""An answer kept for a few seconds, however many ask; whoever comes meanwhile waits for it."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

from supervisor.clock import boottime

T = TypeVar("T")


class Kept(Generic[T]):
    def __init__(self, ask: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self._lock = anyio.Lock()
        self._answers: list[T] = []
        self._asked_at = float("-inf")

    async def get(self) -> T:
        async with self._lock:
            if not self._answers or boottime() - self._asked_at >= self._seconds:
                begun = boottime()
                self._answers = [await self._ask()]
                self._asked_at = begun
            return self._answers[0]
