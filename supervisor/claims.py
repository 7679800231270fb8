"""The claims this replica holds, and until when each of them may be executed.

Shared by the event loop (which executes) and the thread of beats (which hears from the database), so every
method takes the lock. The rules:

- a claim is named in every beat from before its start is sent until its finish is answered, or its start
  was refused or given up;
- its work stops S after the *send* of its start, or of the last beat that named it and whose answer listed
  it;
- named and not listed: it stops now. Errors and time-outs extend nothing, and a stop is final;
- the dead man's timer of the kernel stands at the earliest stop plus k, while anything is executed.
"""

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol
from uuid import UUID

from supervisor.config import Timings

Why = Literal["LOST", "CANCEL", "DRAIN"]


class Timer(Protocol):
    def arm(self, deadline_boottime: float) -> None: ...

    def disarm(self) -> None: ...


@dataclass(slots=True)
class Held:
    claim_id: UUID
    run_id: int
    stop_at: float = 0.0
    executing: bool = False
    revoked_at: float | None = None
    why: Why | None = None
    stop: Callable[[], None] | None = None
    moved: list[Callable[[float], None]] = field(default_factory=list)

    def must_end_by(self, kill: float) -> float:
        return (self.stop_at if self.revoked_at is None else min(self.stop_at, self.revoked_at)) + kill


class Claims:
    def __init__(self, timings: Timings, timer: Timer) -> None:
        self._timings = timings
        self._timer = timer
        self._lock = threading.RLock()
        self._held: dict[UUID, Held] = {}
        self._beat_no = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, claim_id: object) -> bool:
        return claim_id in self._held

    @property
    def beat_no(self) -> int:
        """The number of the last list that was built."""
        with self._lock:
            return self._beat_no

    def hold(self, claim_id: UUID, run_id: int) -> Held:
        """From here on every list names it; call this before the start is sent."""
        with self._lock:
            return self._held.setdefault(claim_id, Held(claim_id, run_id))

    def drop(self, claim_ids: Iterable[UUID]) -> None:
        with self._lock:
            for claim_id in claim_ids:
                self._held.pop(claim_id, None)
            self._rearm()

    def begin(self, held: Held, sent_at: float, now: float, stop: Callable[[], None]) -> bool:
        """The start was answered: may it be executed? Not when its time is over already."""
        with self._lock:
            held.stop_at = max(held.stop_at, sent_at + self._timings.self_stop)
            if held.revoked_at is not None or now >= held.stop_at or held.claim_id not in self._held:
                return False
            held.executing = True
            held.stop = stop
            self._rearm()
            if held.why is not None:
                stop()
            return True

    def ended(self, held: Held) -> None:
        """The handler has ended; the claim stays named until its finish is answered."""
        with self._lock:
            held.executing = False
            held.stop = None
            held.moved.clear()
            self._rearm()

    def build_list(self) -> tuple[int, list[UUID]]:
        with self._lock:
            self._beat_no += 1
            return self._beat_no, list(self._held)

    def answered(
        self,
        named: Iterable[UUID],
        listed: Collection[UUID],
        cancels: Collection[UUID],
        sent_at: float,
        now: float,
    ) -> None:
        """Take the answer to a beat: it says something only about what that beat named."""
        with self._lock:
            for claim_id in named:
                held = self._held.get(claim_id)
                if held is None:
                    continue
                if claim_id not in listed:
                    self._revoke(held, now)
                elif held.revoked_at is None and now < held.stop_at:
                    self._extend(held, sent_at + self._timings.self_stop)
                    if claim_id in cancels:
                        self._ask_to_stop(held, "CANCEL")
            self._rearm()

    def enforce(self, now: float) -> None:
        """Stop what was not confirmed in time."""
        with self._lock:
            for held in self._held.values():
                if held.executing and held.revoked_at is None and now >= held.stop_at:
                    self._revoke(held, now)
            self._rearm()

    def stop_all(self, why: Why) -> None:
        with self._lock:
            for held in self._held.values():
                self._ask_to_stop(held, why)

    def executing(self) -> list[UUID]:
        with self._lock:
            return [held.claim_id for held in self._held.values() if held.executing]

    def next_stop(self) -> float | None:
        with self._lock:
            stops = [h.stop_at for h in self._held.values() if h.executing and h.revoked_at is None]
            return min(stops, default=None)

    def _extend(self, held: Held, stop_at: float) -> None:
        if stop_at > held.stop_at:
            held.stop_at = stop_at
            for callback in held.moved:
                callback(stop_at)

    def _revoke(self, held: Held, now: float) -> None:
        if held.revoked_at is None:
            held.revoked_at = now
            held.why = "LOST"
            if held.stop is not None:
                held.stop()

    def _ask_to_stop(self, held: Held, why: Why) -> None:
        if held.why is None:
            held.why = why
            if held.stop is not None:
                held.stop()

    def _rearm(self) -> None:
        ends = [held.must_end_by(self._timings.kill) for held in self._held.values() if held.executing]
        if ends:
            self._timer.arm(min(ends))
        else:
            self._timer.disarm()
