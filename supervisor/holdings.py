"""The leased rows of one table that this replica holds, and until when each of them may be worked on.

Shared by the event loop (which works) and the keeper's thread (which hears from the database), so every
method takes the lock. The rules are those of claims.py, with the lease in the place of S:

- a row's work stops (lease / clock-rate error - k) after the *send* of its claim, or of the last heartbeat
  that named it and whose answer listed it; so it has ended, by the dead man's timer if need be, before
  anybody may call the lease stale;
- named and not listed: it stops now. Errors and time-outs extend nothing, and a stop is final;
- a row is named from its claim until its outcome was answered.

Rows come and go by hundreds, so the timer is only ever moved earlier on the way; `enforce` puts it right.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from supervisor.claims import Timer, Why, tell


@dataclass(slots=True, eq=False)
class HeldRow:
    key: tuple[Any, ...]
    token: UUID
    values: tuple[Any, ...]
    stop_at: float
    attempt: int = 0
    waiting: bool = True
    lost: bool = False
    lost_at: float = 0.0
    why: Why | None = None
    stop: Callable[[], object] | None = None
    moved: list[Callable[[float], None]] = field(default_factory=list)
    progress: Mapping[str, Any] | None = None


class Holdings:
    def __init__(self, stop_seconds: float, kill_seconds: float, timer: Timer) -> None:
        self.stop_seconds = stop_seconds
        self.kill_seconds = kill_seconds
        self._timer = timer
        self._lock = threading.RLock()
        self._held: dict[UUID, HeldRow] = {}
        self._executing: dict[UUID, HeldRow] = {}
        self._waiting = 0
        self._armed: float | None = None

    def __len__(self) -> int:
        return len(self._held)

    def take(self, rows: Collection[HeldRow]) -> None:
        with self._lock:
            self._held.update((row.token, row) for row in rows)
            self._waiting += len(rows)

    def begin(self, row: HeldRow, now: float, stop: Callable[[], object]) -> bool:
        """May it be worked on? Not when it is lost or its time is over already."""
        with self._lock:
            self._no_longer_waiting(row)
            if row.lost or now >= row.stop_at or row.token not in self._held:
                return False
            row.stop = stop
            self._executing[row.token] = row
            must_end_by = row.stop_at + self.kill_seconds
            if self._armed is None or must_end_by < self._armed:
                self._arm(must_end_by)
            return True

    def ended(self, row: HeldRow) -> None:
        """The handler has ended; the row stays named until its outcome is answered."""
        with self._lock:
            self._executing.pop(row.token, None)
            row.stop = None
            row.moved.clear()
            if not self._executing and not self._waiting:
                self._arm(None)

    def drop(self, rows: Iterable[HeldRow]) -> None:
        with self._lock:
            for row in rows:
                self._held.pop(row.token, None)
                self._no_longer_waiting(row)

    def named(self) -> list[HeldRow]:
        with self._lock:
            return list(self._held.values())

    def answered(
        self, named: Iterable[HeldRow], listed: Collection[UUID], sent_at: float, now: float
    ) -> None:
        """Take the answer to a heartbeat: it says something only about what that heartbeat named."""
        stop_at = sent_at + self.stop_seconds
        with self._lock:
            for row in named:
                if row.token not in listed:
                    self._lose(row, now)
                elif not row.lost and now < row.stop_at < stop_at:
                    row.stop_at = stop_at
                    tell(row.moved, stop_at)
            self._rearm()

    def enforce(self, now: float) -> None:
        """Stop what was not confirmed in time."""
        with self._lock:
            for row in list(self._executing.values()):
                if now >= row.stop_at:
                    self._lose(row, now)
            self._rearm()

    def stop_all(self, why: Why) -> None:
        with self._lock:
            for row in list(self._executing.values()):
                if row.why is None:
                    row.why = why
                    if row.stop is not None:
                        row.stop()

    def next_stop(self) -> float | None:
        with self._lock:
            return min((row.stop_at for row in self._executing.values() if not row.lost), default=None)

    def _no_longer_waiting(self, row: HeldRow) -> None:
        if row.waiting:
            row.waiting = False
            self._waiting -= 1

    def _lose(self, row: HeldRow, now: float) -> None:
        if row.lost:
            return
        row.lost, row.lost_at, row.why = True, now, "LOST"
        if row.stop is not None:
            row.stop()

    def _rearm(self) -> None:
        ends = [
            min(row.stop_at, row.lost_at) if row.lost else row.stop_at for row in self._executing.values()
        ]
        self._arm(min(ends) + self.kill_seconds if ends else None)

    def _arm(self, deadline: float | None) -> None:
        if deadline == self._armed:
            return
        self._armed = deadline
        if deadline is None:
            self._timer.disarm()
        else:
            self._timer.arm(deadline)
