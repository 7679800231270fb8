"""What a contestant says and hears: a line with a phase in, a line with its figures out.

Imported by every contestant, also in the environment of the peers: nothing but the standard library.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

Figures = dict[str, Any]
Phase = Callable[..., Awaitable[Figures | None]]

# what a peer prints is not an answer; the answers go where standard output was
_ANSWERS: Final = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def arguments() -> dict[str, Any]:
    given: dict[str, Any] = json.loads(sys.argv[1])
    return given


async def perform(phases: Mapping[str, Phase]) -> None:
    """Carry out what is asked for until nothing more is."""
    answer({"ready": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, given = json.loads(line)
        began = time.monotonic()
        figures = await phases[name](**given)
        answer({"wall": time.monotonic() - began, **(figures or {})})


def answer(figures: Figures) -> None:
    _ANSWERS.write(json.dumps(figures) + "\n")


class Tally:
    """Counts jobs as they end; `all_of` waits until so many more have."""

    def __init__(self) -> None:
        self.count = 0
        self._wanted = 0
        self._reached = asyncio.Event()

    def add(self, count: int = 1) -> None:
        self.count += count
        if self.count >= self._wanted:
            self._reached.set()

    def expect(self, more: int) -> None:
        self._wanted = self.count + more
        self._reached.clear()

    async def reached(self, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            await self._reached.wait()


class Latency:
    """Jobs at a steady rate, each with the moment it was asked for; the handler says when it has it."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def picked_up(self, asked_at: float) -> None:
        self.waits.append(time.monotonic() - asked_at)

    async def pace(
        self, enqueue: Callable[[float], Awaitable[object]], rate: float, seconds: float
    ) -> Figures:
        self.waits.clear()
        began, count = time.monotonic(), int(rate * seconds)
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            await enqueue(time.monotonic())
        deadline = time.monotonic() + 10
        while len(self.waits) < count and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return {"waits": list(self.waits), "asked": count}
