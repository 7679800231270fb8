"""Work that may crash, hang or eat memory, in a pool of limited child processes.

    async with Chambers("actors.dedup.render.task:render", size=2, limits=limits) as chambers:
        result = await chambers.carry_out({"format": "webp"}, [source_fd, output_fd], deadline=d)

The task is a function `(request, descriptors) -> result` of a module that each child loads once; a request
costs a round trip, not the start of an interpreter. Request and result are small JSON objects; everything
large goes through the descriptors, which stay the caller's to close. A child opens nothing by itself: where
the kernel has Landlock it can read its interpreter's libraries and nothing else, and where it has seccomp it
has no sockets, no processes and no hand on others (`guards` tells what is in force).

A request ends by its result, by TaskFailed (the task's own verdict), ChamberKilled (crash, memory or CPU
limit), ChamberTimedOut or ChamberNotStarted. After anything but a verdict the child is replaced. A cancelled
request kills its child before the cancellation goes on: it may be deep in C code. A child does not outlive
its deadline even if this process is stopped (deadman.py), nor this process.

NOT guaranteed: that a request which failed has left the output untouched; the caller discards it.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import anyio
from anyio import CancelScope, to_thread

from supervisor.chamber_failure import ChamberKilled, ChamberNotStarted, ChamberTimedOut, TaskFailed
from supervisor.chamber_process import Chamber, encode, open_chamber
from supervisor.clock import boottime

__all__ = ["ChamberKilled", "ChamberNotStarted", "ChamberTimedOut", "Chambers", "Limits", "TaskFailed"]

START_SECONDS = 30.0
# One arena: the address space is limited, and a child computes in one thread at a time.
ENVIRONMENT = {"MALLOC_ARENA_MAX": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one child; cpu_seconds, seconds and output_bytes are counted anew for each request."""

    memory_bytes: int
    cpu_seconds: float
    seconds: float
    output_bytes: int
    open_files: int = 64
    recycle_requests: int = 1000
    recycle_resident_bytes: int = 512 * 1024 * 1024


class Chambers:
    """Up to `size` children for one task, started when first needed."""

    def __init__(
        self,
        task: str,
        *,
        size: int,
        limits: Limits,
        environment: Mapping[str, str] | None = None,
        readable: Sequence[str] = (),
    ) -> None:
        self.task = task
        self.size = size
        self.guards: Mapping[str, Any] = {}
        self._limits = limits
        self._environment = _environment(environment or {})
        self._readable = list(readable)
        self._slots = anyio.Semaphore(size)
        self._idle: list[Chamber] = []
        self._dying: list[Chamber] = []
        self._starter: ThreadPoolExecutor | None = None

    async def __aenter__(self) -> Self:
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="chambers")
        return self

    async def __aexit__(self, *_: object) -> None:
        starter, self._starter = self._starter, None
        with CancelScope(shield=True):
            if starter:  # a start that was cancelled may still be under way
                await to_thread.run_sync(starter.shutdown)
            while self._idle:
                await self._bury(self._idle.pop())
            for chamber in self._dying:
                await chamber.bury()

    async def carry_out(
        self, request: Mapping[str, Any], handles: Sequence[int] = (), *, deadline: float
    ) -> dict[str, Any]:
        """The task's result for `request`; `deadline` (boottime) bounds the wait for a free child too."""
        encode(request)
        with anyio.move_on_after(max(0.0, deadline - boottime())):
            async with self._slots:
                return _verdict(await self._with_chamber(request, handles, deadline))
        raise ChamberTimedOut

    async def _with_chamber(
        self, request: Mapping[str, Any], handles: Sequence[int], deadline: float
    ) -> dict[str, Any]:
        chamber = await self._take()
        end = min(deadline, boottime() + self._limits.seconds)
        usable = False
        try:
            with anyio.move_on_after(max(0.0, end - boottime())):
                answer = await chamber.ask(request, handles, end)
                usable = self._is_fit(chamber)
                return answer
        except ChamberKilled as killed:
            if killed.signal == signal.SIGKILL and boottime() >= end:  # its dead man's timer was faster
                raise ChamberTimedOut from killed
            raise
        finally:
            if usable and self._starter:
                self._idle.append(chamber)
            else:
                await self._bury(chamber)
        raise ChamberTimedOut

    def _is_fit(self, chamber: Chamber) -> bool:
        return (
            chamber.requests < self._limits.recycle_requests
            and chamber.resident_bytes < self._limits.recycle_resident_bytes
        )

    async def _take(self) -> Chamber:
        while self._idle:
            chamber = self._idle.pop()
            if chamber.lives:
                return chamber
            await self._bury(chamber)
        return await self._start()

    async def _start(self) -> Chamber:
        self._forget_buried()
        if self._starter is None:
            raise ChamberNotStarted(task=self.task, what="the pool is closed")
        start = self._starter.submit(open_chamber, self._spec(), self._environment)
        try:
            chamber = await asyncio.wrap_future(start)
        except OSError as error:
            raise ChamberNotStarted(task=self.task, what=error.strerror or str(error)) from error
        except BaseException:  # cancelled: the thread goes on, and its child would be nobody's
            start.add_done_callback(self._disown)
            raise
        try:
            with anyio.fail_after(START_SECONDS):
                self.guards = await chamber.become_ready(self.task)
        except TimeoutError as error:
            await self._bury(chamber)
            raise ChamberNotStarted(task=self.task, what="it was not ready in time") from error
        except BaseException:
            await self._bury(chamber)
            raise
        return chamber

    def _disown(self, start: Future[Chamber]) -> None:
        if not start.cancelled() and start.exception() is None:
            start.result().kill()
            self._dying.append(start.result())

    async def _bury(self, chamber: Chamber) -> None:
        self._dying.append(chamber)
        await chamber.bury()
        self._forget_buried()

    def _forget_buried(self) -> None:
        self._dying = [chamber for chamber in self._dying if not chamber.buried]

    def _spec(self) -> dict[str, Any]:
        return {
            **asdict(self._limits),
            "task": self.task,
            "parent": os.getpid(),
            "path": [place for place in sys.path if Path(place).is_absolute()],
            "readable": self._readable,
            "start_deadline": boottime() + START_SECONDS,
        }


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return {**inherited, **ENVIRONMENT, **own}


def _verdict(answer: Mapping[str, Any]) -> dict[str, Any]:
    match answer:
        case {"result": dict(result)}:
            return result
        case {"failed": [code, message]}:
            raise TaskFailed(code, message)
        case _:
            raise TaskFailed("TASK_FAILED", "the task gave no result")
