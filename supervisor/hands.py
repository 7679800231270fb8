"""Tasks that carry out what is queued, as many as are busy at once, and each used again.

A burst of short work costs no task each: a hand goes on to the next item as long as nothing made it wait, and
whenever it takes one it sees to it that somebody is there for the one after. Each item is handed over with
the hand that has it, which can stop it (stoppable.py).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar

from anyio.abc import TaskGroup

from supervisor.stoppable import Stoppable

IN_A_ROW: Final = 32
"""After so many items that nobody had to wait for, the event loop gets a turn."""

T = TypeVar("T")


class Hands(Generic[T]):
    def __init__(self, group: TaskGroup, work: Callable[[T, Stoppable], Awaitable[None]]) -> None:
        self._group = group
        self._work = work
        self._queue: deque[T] = deque()
        self._idle: list[asyncio.Event] = []
        self._one_is_coming = False

    def give(self, items: Iterable[T]) -> None:
        self._queue.extend(items)
        self._call_one()

    def _call_one(self) -> None:
        if not self._queue or self._one_is_coming:
            return
        self._one_is_coming = True
        if self._idle:
            self._idle.pop().set()
        else:
            self._group.start_soon(self._hand)

    async def _hand(self) -> None:
        with Stoppable() as own:
            while True:
                self._one_is_coming = False
                in_a_row = 0
                while self._queue:
                    item = self._queue.popleft()
                    self._call_one()
                    await self._work(item, own)
                    in_a_row += 1
                    if in_a_row % IN_A_ROW == 0:
                        await asyncio.sleep(0)
                called = asyncio.Event()
                self._idle.append(called)
                await called.wait()
