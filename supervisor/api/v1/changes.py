"""What changes, told to all who listen on this replica with one look at the database a second, and none while
nobody listens.

There is no task: whoever waits and finds the last look too old takes the next one, for all. A look reads the
moves of runs since the one before, with an overlap, because a move that was written earlier can be committed
later; what was told is not told again. Changes are a reason to look, never a record: of several moves of a
run the newest is told, and whoever is too slow gets a `reset` instead: read again what you show.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import anyio

from supervisor.api.v1 import sse
from supervisor.clock import Clock
from supervisor.errors import TenureError
from supervisor.sight import Raw
from supervisor.store import Record, Store

LOOK_SECONDS: Final = 1.0
OVERLAP: Final = timedelta(seconds=3)
REACH: Final = timedelta(minutes=50)
"""How far back a broken stream goes on; the query itself looks back an hour at most."""
MOVES: Final = 1000
QUEUE: Final = 2000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(eq=False)
class Subscriber:
    waiting: deque[str] = field(default_factory=deque)
    some: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, text: str) -> None:
        if len(self.waiting) >= QUEUE:
            self.reset()
        else:
            self.waiting.append(text)
            self.some.set()

    def reset(self) -> None:
        """Too much to tell: what waits is dropped for one word."""
        self.waiting.clear()
        self.waiting.append(sse.event("reset", {}))
        self.some.set()

    def take(self) -> list[str]:
        taken = list(self.waiting)
        self.waiting.clear()
        self.some.clear()
        return taken


class Changes:
    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._store = store
        self._clock = clock or Clock()
        self._turn = anyio.Lock()
        self._subscribers: set[Subscriber] = set()
        self._looked_at = float("-inf")
        self._seen_until: datetime | None = None
        self._told: dict[tuple[int, int], datetime] = {}
        self._standing: tuple[Any, Any] | None = None

    @contextmanager
    def subscribed(self) -> Iterator[Subscriber]:
        if not self._subscribers:
            # nobody looked meanwhile: the story begins now
            self._seen_until = self._standing = None
            self._told.clear()
            self._looked_at = float("-inf")
        subscriber = Subscriber()
        self._subscribers.add(subscriber)
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)

    async def wait(self, subscriber: Subscriber) -> list[str]:
        """What there is for this one, after a second at the latest; it may be nothing."""
        if not subscriber.waiting:
            left = LOOK_SECONDS - (self._clock.now() - self._looked_at)
            with anyio.move_on_after(max(0.0, left)):
                await subscriber.some.wait()
        if not subscriber.waiting:
            async with self._turn:
                is_due = self._clock.now() - self._looked_at >= LOOK_SECONDS
                if is_due and not subscriber.waiting:
                    await self._look()
        return subscriber.take()

    async def begin(self, subscriber: Subscriber, last_event_id: str | None) -> None:
        """Tell where the stream begins; after a break, first what was missed, or that it was too much."""
        async with self._turn:
            if self._seen_until is None:
                await self._look()
        standing = self._standing
        assert standing is not None  # noqa: S101  a look has succeeded
        if last_event_id is not None:
            await self._catch_up(subscriber, _moment(last_event_id))
        if self._seen_until is not None:
            subscriber.tell(_hello(self._seen_until, standing))

    async def _catch_up(self, subscriber: Subscriber, since: datetime | None) -> None:
        if since is None or self._seen_until is None or since < self._seen_until - REACH:
            subscriber.reset()
            return
        moves = await self._store.rows("read_moves", since - OVERLAP, MOVES)
        if len(moves) == MOVES:
            subscriber.reset()
            return
        for move in _newest(moves):
            subscriber.tell(_run(move))

    async def _look(self) -> None:
        try:
            standing = await self._store.row("read_standing")
            assert standing is not None  # noqa: S101  one row always
            await self._tell_moves(standing["now"])
        except TenureError:
            # the database is away; the next look that succeeds begins where the last one ended
            if self._seen_until is None:
                raise
            return
        finally:
            # a slow database is not asked more often for it
            self._looked_at = self._clock.now()
        now = ((standing["epoch"], standing["leader"]), standing["workers"])
        before, self._standing = self._standing, now
        if before is not None and before[0] != now[0]:
            self._tell(_leader(now[0]))
        if before is not None and before[1] != now[1]:
            self._tell(sse.event("workers", Raw(now[1])))

    async def _tell_moves(self, now: datetime) -> None:
        since = self._seen_until
        if since is not None:
            self._told = {key: at for key, at in self._told.items() if at > since - OVERLAP}
            moves = await self._store.rows("read_moves", since - OVERLAP, MOVES)
            fresh = [move for move in moves if (move["run_id"], move["version"]) not in self._told]
            self._told |= {(move["run_id"], move["version"]): move["at"] for move in fresh}
            if len(moves) == MOVES:
                for subscriber in self._subscribers:
                    subscriber.reset()
            else:
                for move in _newest(fresh):
                    self._tell(_run(move))
        self._seen_until = now

    def _tell(self, text: str) -> None:
        for subscriber in self._subscribers:
            subscriber.tell(text)


def _newest(moves: list[Record] | Any) -> list[Record]:
    """Of each run its last move, in the order of those."""
    last = {move["run_id"]: move for move in moves}
    return sorted(last.values(), key=lambda move: move["at"])


def _run(move: Record) -> str:
    facts = {
        "id": move["run_id"],
        "root_id": move["root_id"],
        "version": move["version"],
        "state": move["to_state"],
        "continuation_state": move["continuation_state"],
        "attempt": move["attempt"],
        "worker_id": move["worker_id"],
        "at": move["at"],
    }
    return sse.event("run", facts, _number(move["at"]))


def _leader(standing: tuple[int, str | None]) -> str:
    return sse.event("leader", {"epoch": standing[0], "worker_id": standing[1]})


def _hello(at: datetime, standing: tuple[Any, Any]) -> str:
    (epoch, leader), workers = standing
    facts = {"at": at, "leader": {"epoch": epoch, "worker_id": leader}, "workers": Raw(workers)}
    return sse.event("hello", facts, _number(at))


def _number(at: datetime) -> int:
    """Microseconds: the id of an event, from which a broken stream goes on."""
    return (at - EPOCH) // timedelta(microseconds=1)


def _moment(last_event_id: str) -> datetime | None:
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 17):
        return None
    return EPOCH + timedelta(microseconds=int(last_event_id))
