"""The pulse: a thread with an event loop and a connection of its own that beats for this replica.

Whatever blocks the main loop, beats go out and stops are enforced; a blocked loop is a metric, not a death.
But a replica whose main loop does not look for what it is given (it is blocked, or its own connections are
dead) must not keep that: after S the beats say that it takes nothing, and after D they give back what it has
not started. The leader would leave it with a worker that is heard.
"""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from supervisor.claims import Claims
from supervisor.clock import boottime, jitter
from supervisor.config import Timings
from supervisor.identity import Identity
from supervisor.logs import logger
from supervisor.memory import Memory
from supervisor.metrics import Metrics
from supervisor.store import Record, Store

ENFORCE_SECONDS: Final = 0.2

_log = logger("pulse")


@dataclass(slots=True)
class Listener:
    """What the pulse tells the replica; each is called in the pulse's thread."""

    assigned: Callable[[], None]
    drain: Callable[[], None]


@dataclass(slots=True)
class Pulse:
    url: str
    identity: Identity
    domains: tuple[str, ...]
    slots: int
    timings: Timings
    claims: Claims
    memory: Memory
    metrics: Metrics
    listener: Listener
    pooled: bool = False
    draining: bool = False
    answered_at: float = 0.0
    looked_at: float = 0.0
    _answering_since: float | None = None
    _leaderless_since: float | None = None
    _changes: int = 0
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def worker_id(self) -> str:
        return self.identity.worker_id

    @property
    def _patience(self) -> float:
        return max(1.0, 2 * self.timings.heartbeat)

    def looked(self) -> None:
        """The main loop has seen to what this replica was given."""
        self.looked_at = boottime()

    def _neglected(self) -> float:
        """For how many seconds nobody has, though the database answers; who drains takes nothing anyway."""
        if self.draining or self._answering_since is None:
            return 0.0
        return boottime() - max(self.looked_at, self._answering_since)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=self.timings.heartbeat * 2 + 2)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        store = Store(
            self.url, name=f"tenure/{self.worker_id}/beat", size=1, pooled=self.pooled, memory=self.memory
        )
        enforcing = asyncio.create_task(self._enforce())
        try:
            while not self._stopping.is_set():
                began = boottime()
                answered = await self._beat(store)
                pause = self.timings.heartbeat if answered else jitter(self.timings.heartbeat / 2)
                await self._pause(began + pause)
        finally:
            enforcing.cancel()
            await store.close()

    async def _pause(self, until: float) -> None:
        while (left := until - boottime()) > 0 and not self._stopping.is_set():
            await asyncio.sleep(min(left, 0.1))

    async def _enforce(self) -> None:
        while True:
            self.claims.enforce(boottime())
            stop_at = self.claims.next_stop()
            left = ENFORCE_SECONDS if stop_at is None else stop_at - boottime()
            await asyncio.sleep(min(max(left, 0.005), ENFORCE_SECONDS))

    async def _beat(self, store: Store) -> bool:
        beat_no, named = self.claims.build_list()
        sent = boottime()
        try:
            row = await store.row(
                "beat_worker",
                self.worker_id,
                self.identity.secret,
                beat_no,
                self.memory.epoch,
                named,
                [] if self._neglected() >= self.timings.self_stop else list(self.domains),
                self.slots,
                self.timings.stop_bound,
                self.draining,
                timeout=self._patience,
            )
            await self._hear(store, named, row, sent)
        except Exception as error:  # noqa: BLE001  however it fails, it is a beat not answered, and the next follows
            self._answering_since = None
            self.metrics.beat_errors.inc()
            _log.warning("beat not answered", worker_id=self.worker_id, reason=str(error) or repr(error))
            return False
        return True

    async def _hear(self, store: Store, named: list[UUID], row: Record | None, sent: float) -> None:
        if row is None:
            raise AssertionError("a beat always answers one row")
        now = boottime()
        self.answered_at = now
        self._answering_since = self._answering_since or now
        self.metrics.renew_seconds.observe(now - sent)
        self.metrics.claims.set(len(named))
        self.claims.answered(named, set(row["listed"]), set(row["cancels"]), sent, now)
        self._learn(row)
        await self._mind_the_leader(store, row["leader_live"], now)
        if row["assigned"] and self._neglected() >= self.timings.stop_bound:
            await self._give_back(store)

    async def _give_back(self, store: Store) -> None:
        """All but what the main loop holds: that it is about to start, or has started."""
        me, bound = self.worker_id, self._patience
        try:
            given = await store.rows("read_assigned", me, self.identity.secret, 0, timeout=bound)
            left = [row for row in given if row["claim_id"] not in self.claims]
            ids, claims = [row["id"] for row in left], [row["claim_id"] for row in left]
            released = await store.value("release_runs", me, ids, claims, timeout=bound)
        except Exception as error:  # noqa: BLE001  the beat itself was answered; the next one tries again
            _log.warning("could not give back what was not started", reason=str(error))
            return
        _log.error("given back what was not started", runs=released, neglected_seconds=self._neglected())

    def _learn(self, row: Record) -> None:
        self.memory.learn(row["epoch"] or 0, row["system_identifier"], row["timeline"])
        self.metrics.leader_epoch.set(self.memory.epoch)
        self.metrics.leader_changes.inc(self.memory.changes - self._changes)
        self._changes = self.memory.changes
        if row["drain"] and not self.draining:
            self.listener.drain()
        if row["assigned"]:
            self.listener.assigned()

    async def _mind_the_leader(self, store: Store, live: bool, now: float) -> None:
        """Without a leader for C the worker itself says until when it goes on."""
        if live:
            self._leaderless_since = None
            return
        if self._leaderless_since is None:
            self._leaderless_since = now
        executing = self.claims.executing()
        if executing and now - self._leaderless_since >= self.timings.confirm_after:
            try:
                await store.value(
                    "confirm_self",
                    self.worker_id,
                    executing,
                    self.timings.stop_bound,
                    timeout=self._patience,
                )
            except Exception as error:  # noqa: BLE001  the next beat says it again
                _log.warning("could not say that there is no leader", reason=str(error))
