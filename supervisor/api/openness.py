"""Whether being on this machine is enough: only while nobody has a token.

The database is asked every so many seconds. While it is away the last answer holds; where there was none yet,
nobody is let in: tokens may exist.
"""

import anyio

from supervisor.clock import Clock
from supervisor.errors import TenureError
from supervisor.store import Store


class Openness:
    def __init__(self, store: Store, clock: Clock, seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._seconds = seconds
        self._asking = anyio.Lock()
        self._asked_at = float("-inf")
        self._nobody_has_one: bool | None = None

    async def holds(self) -> bool:
        async with self._asking:
            now = self._clock.now()
            if self._nobody_has_one is None or now - self._asked_at >= self._seconds:
                self._nobody_has_one = await self._ask(self._nobody_has_one)
                self._asked_at = now
            return self._nobody_has_one

    async def _ask(self, before: bool | None) -> bool:
        try:
            return not await self._store.value("has_token")
        except TenureError:
            if before is None:
                raise
            return before
