"""An event loop whose time is made up and whose next step is drawn from a seed.

Every host of the simulation has lanes: its event loop, and the thread of beats. A lane runs its callbacks in
their order, as a loop must; which lane goes next is drawn. A frozen lane goes on collecting and runs nothing,
as a stopped process does. Nothing waits: when no lane can run, time jumps to the next timer.
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, MutableSet
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, TypeVarTuple

STEP_SECONDS: Final = 2e-5
LATE_SECONDS: Final = 2e-3
"""How late timers are, on average."""


@dataclass(eq=False)
class Lane:
    """One thread of a host."""

    name: str
    host: "HostClock"
    queue: deque[asyncio.Handle] = field(default_factory=deque)
    frozen: int = 0


@dataclass(eq=False)
class HostClock:
    """A host's own boottime: it began at another moment, and goes a little faster or slower."""

    offset: float = 0.0
    rate: float = 1.0
    main: Lane | None = None

    def local(self, now: float) -> float:
        return self.offset + self.rate * now

    def shared(self, local: float) -> float:
        return (local - self.offset) / self.rate


LANE: ContextVar[Lane] = ContextVar("lane")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class OrderedSet(MutableSet[T]):
    """A set in the order of its making: that of a set of tasks follows their addresses, which differ."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = dict.fromkeys(items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: T) -> None:
        self._items[value] = None

    def discard(self, value: T) -> None:
        self._items.pop(value, None)

    def copy(self) -> "OrderedSet[T]":
        return OrderedSet(self._items)


class Loop(asyncio.SelectorEventLoop):
    def __init__(self, seed: random.Random) -> None:
        super().__init__()
        self.random = seed
        self.now = 0.0
        self.steps = 0
        self.on_step: Callable[[], object] = bool
        self.world = Lane("world", HostClock())
        self.world.host.main = self.world
        self.lanes = [self.world]
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._made = 0

    def add_lane(self, name: str, host: HostClock) -> Lane:
        lane = Lane(name, host)
        self.lanes.append(lane)
        return lane

    def remove_lane(self, lane: Lane) -> None:
        """Nothing of it ever runs again; its callbacks stay as they are."""
        lane.frozen += 1
        self.lanes.remove(lane)

    def in_lane(self, lane: Lane) -> Context:
        """For tasks that belong to another lane than the caller's."""
        context = copy_context()
        context.run(LANE.set, lane)
        return context

    def at(self, seconds: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """From now, by the world's clock, and in the world's lane."""
        return self.call_at(self.now + seconds, callback, *args, context=self.in_lane(self.world))

    def time(self) -> float:
        return self._lane().host.local(self.now)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._lane_of(handle).queue.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Whichever thread of a host calls, its event loop answers."""
        main = self._lane().host.main
        return self.call_soon(callback, *args, context=context or self.in_lane(main or self.world))

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        due = self._lane_of(timer).host.shared(when) + self.random.expovariate(1 / LATE_SECONDS)
        self._made += 1
        heapq.heappush(self._timers, (due, self._made, timer))
        return timer

    def run_in_executor(  # type: ignore[override]  # what a thread would do is done here and now
        self, _executor: Any, work: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        result = work(*args)
        if isinstance(result, asyncio.Future):
            return result
        future = self.create_future()
        future.set_result(result)
        return future

    def _lane(self) -> Lane:
        return LANE.get(self.world)

    def _lane_of(self, handle: asyncio.Handle) -> Lane:
        context: Context = handle._context  # type: ignore[attr-defined]
        return context.get(LANE, self.world)

    def _run_once(self) -> None:
        self.steps += 1
        self.now += STEP_SECONDS
        self.on_step()
        self._ripen()
        ready = [lane for lane in self.lanes if lane.queue and not lane.frozen]
        if not ready:
            if not self._timers:
                raise RuntimeError("nothing will ever happen again")
            self.now = max(self.now, self._timers[0][0])
            return
        lane = ready[0] if len(ready) == 1 else self.random.choice(ready)
        handle = lane.queue.popleft()
        if not handle.cancelled():
            handle._run()

    def _ripen(self) -> None:
        while self._timers and self._timers[0][0] <= self.now:
            _, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                self._lane_of(timer).queue.append(timer)
