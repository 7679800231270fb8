"""What waits to be told to the database: given out in batches, each repeated until it was answered."""

from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import anyio
from structlog.stdlib import BoundLogger

from supervisor.clock import jitter
from supervisor.errors import DatabaseUnreachable, OutcomeUnknown

BATCH: Final = 500

T = TypeVar("T")


class Outbox(Generic[T]):
    """One task takes; any may add."""

    def __init__(self) -> None:
        self._waiting: list[T] = []
        self._some = anyio.Event()

    def add(self, item: T) -> None:
        self._waiting.append(item)
        self._some.set()

    async def take(self) -> list[T]:
        """The oldest, at most BATCH of them, as soon as there is one."""
        while not self._waiting:
            self._some = anyio.Event()
            await self._some.wait()
        batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
        return batch


async def until_answered(send: Callable[[], Awaitable[T]], log: BoundLogger, **what: int) -> T:
    """`send` must be safe to repeat: nobody knows whether a call without an answer was carried out."""
    pause = 0.05
    while True:
        try:
            return await send()
        except (OutcomeUnknown, DatabaseUnreachable) as error:
            log.warning("outcome not recorded yet", **what, reason=str(error))
            await anyio.sleep(jitter(pause))
            pause = min(pause * 2, 1.0)
