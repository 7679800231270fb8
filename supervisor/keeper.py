"""The keeper: a thread with an event loop and connections of its own that extends this replica's leases.

Like the pulse for runs: whatever blocks the main loop, heartbeats go out and stops are enforced.
"""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from supervisor.clock import boottime, jitter
from supervisor.errors import DatabaseUnreachable, OutcomeUnknown
from supervisor.holdings import HeldRow, Holdings
from supervisor.lease import Lease
from supervisor.lease_sql import Statement
from supervisor.logs import logger
from supervisor.store import Store

ENFORCE_SECONDS: Final = 0.2
BEATS_PER_LEASE: Final = 5
CONNECTIONS: Final = 4

_log = logger("keeper")


@dataclass(frozen=True, slots=True)
class Kept:
    """One table's share of the keeper's work."""

    lease: Lease
    beat: Statement
    holdings: Holdings

    @property
    def interval_seconds(self) -> float:
        return self.lease.lease_seconds / BEATS_PER_LEASE


def arrays_of(
    statement: Statement, rows: Sequence[HeldRow], extras: Sequence[Sequence[Any]] = ()
) -> list[Any]:
    """The arguments after the owner: one array for each key column, the tokens, then the extras."""
    keys = [list(column) for column in zip(*(row.key for row in rows), strict=True)]
    if len(extras) != len(statement.extras):
        raise AssertionError("as many arrays as the statement has names")
    return [*keys, [row.token for row in rows], *extras]


class Keeper:
    def __init__(self, url: str, worker_id: str, kept: Sequence[Kept], *, pooled: bool = False) -> None:
        self._url = url
        self._worker_id = worker_id
        self._kept = kept
        self._pooled = pooled
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._kept:
            self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        size = min(CONNECTIONS, len(self._kept))
        store = Store(self._url, name=f"tenure/{self._worker_id}/keep", size=size, pooled=self._pooled)
        tasks = [asyncio.create_task(self._keep(store, one)) for one in self._kept]
        tasks.append(asyncio.create_task(self._enforce()))
        try:
            while not self._stopping.is_set():
                await asyncio.sleep(0.05)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await store.close()

    async def _enforce(self) -> None:
        while True:
            now = boottime()
            stops = []
            for one in self._kept:
                one.holdings.enforce(now)
                if (stop_at := one.holdings.next_stop()) is not None:
                    stops.append(stop_at)
            left = min(stops, default=now + ENFORCE_SECONDS) - boottime()
            await asyncio.sleep(min(max(left, 0.005), ENFORCE_SECONDS))

    async def _keep(self, store: Store, kept: Kept) -> None:
        while True:
            began = boottime()
            answered = True
            if rows := kept.holdings.named():
                answered = await self._beat_safely(store, kept, rows)
            pause = kept.interval_seconds if answered else jitter(kept.interval_seconds / 4)
            await asyncio.sleep(max(0.0, began + pause - boottime()))

    async def _beat_safely(self, store: Store, kept: Kept, rows: Sequence[HeldRow]) -> bool:
        try:
            await self._beat(store, kept, rows)
            return True
        except (OutcomeUnknown, DatabaseUnreachable) as error:
            _log.warning("heartbeat not answered", table=kept.lease.table, reason=str(error))
        except Exception as error:  # noqa: BLE001  one handler's bad value must not cost the others their leases
            _log.error("heartbeat refused", table=kept.lease.table, rows=len(rows), reason=str(error))
            for row in rows:
                row.progress = None
        return False

    async def _beat(self, store: Store, kept: Kept, rows: Sequence[HeldRow]) -> None:
        extras = [[_progress(row, name) for row in rows] for name in kept.beat.extras]
        sent = boottime()
        answer = await store.rows(
            kept.beat,
            self._worker_id,
            *arrays_of(kept.beat, rows, extras),
            timeout=max(1.0, kept.interval_seconds),
        )
        kept.holdings.answered(rows, {row["token"] for row in answer}, sent, boottime())


def _progress(row: HeldRow, name: str) -> Any:
    return None if row.progress is None else row.progress.get(name)


def stop_seconds(lease: Lease, kill_seconds: float, clock_rate_error: float) -> float:
    """How long after the send of a claim or heartbeat its work goes on, so that it ends within the lease."""
    return lease.lease_seconds / clock_rate_error - kill_seconds
