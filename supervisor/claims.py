"""The claims this replica holds, and until when each of them may be executed.

Shared by the event loop (which executes) and the thread of beats (which hears from the database), so every
method takes the lock. The rules:

- a claim is named in every beat from before its start is sent until its finish is answered, or its start
  was refused or given up;
- its work stops S after the *send* of its start, or of the last beat that named it and whose answer listed
  it;
- named and not listed: it stops now. Errors and time-outs extend nothing, and a stop is final;
- the dead man's timer of the kernel stands at the earliest stop plus k, while anything is executed.

Claims come and go by hundreds, so on the way the timer is only ever moved earlier; beats and `enforce` put it
right.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol
from uuid import UUID

from supervisor.config import Timings
from supervisor.logs import logger

_log = logger("claims")

Why = Literal["LOST", "CANCEL", "DRAIN"]


class Timer(Protocol):
    def arm(self, deadline_boottime: float) -> None: ...

    def disarm(self) -> None: ...


@dataclass(slots=True)
class Held:
    claim_id: UUID
    run_id: int
    domain: str
    # 0 until a contact is answered: what has not begun yet is kept by the beats that name it, too
    stop_at: float = 0.0
    revoked_at: float | None = None
    why: Why | None = None
    stop: Callable[[], object] | None = None
    moved: list[Callable[[float], None]] = field(default_factory=list)

    def must_end_by(self, kill: float) -> float:
        return (self.stop_at if self.revoked_at is None else min(self.stop_at, self.revoked_at)) + kill


def tell(callbacks: Iterable[Callable[[float], None]], stop_at: float) -> None:
    """A handler's callback that fails is the handler's own trouble: beats and the other claims go on."""
    for callback in callbacks:
        try:
            callback(stop_at)
        except Exception:  # noqa: BLE001  what a handler raises is anything
            _log.exception("a handler could not be told of its new deadline")


class Claims:
    def __init__(self, timings: Timings, timer: Timer) -> None:
        self._timings = timings
        self._timer = timer
        self._lock = threading.RLock()
        self._held: dict[UUID, Held] = {}
        self._executing: dict[UUID, Held] = {}
        self._armed: float | None = None
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

    def held_by(self) -> Counter[str]:
        """How many of each domain are held."""
        with self._lock:
            return Counter(held.domain for held in self._held.values())

    def hold(self, claim_id: UUID, run_id: int, domain: str) -> Held:
        """From here on every list names it; call this before the start is sent."""
        with self._lock:
            return self._held.setdefault(claim_id, Held(claim_id, run_id, domain))

    def drop(self, claim_ids: Iterable[UUID]) -> None:
        with self._lock:
            for claim_id in claim_ids:
                self._held.pop(claim_id, None)

    def begin(self, held: Held, sent_at: float, now: float, stop: Callable[[], object]) -> bool:
        """The start was answered: may it be executed? Not when its time is over already."""
        with self._lock:
            held.stop_at = max(held.stop_at, sent_at + self._timings.self_stop)
            if held.revoked_at is not None or now >= held.stop_at or held.claim_id not in self._held:
                return False
            self._executing[held.claim_id] = held
            held.stop = stop
            must_end_by = held.must_end_by(self._timings.kill)
            if self._armed is None or must_end_by < self._armed:
                self._arm(must_end_by)
            if held.why is not None:
                stop()
            return True

    def ended(self, held: Held) -> None:
        """The handler has ended; the claim stays named until its finish is answered."""
        with self._lock:
            self._executing.pop(held.claim_id, None)
            held.stop = None
            held.moved.clear()
            if not self._executing:
                self._arm(None)

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
                elif held.revoked_at is None and (now < held.stop_at or not held.stop_at):
                    self._extend(held, sent_at + self._timings.self_stop)
                    if claim_id in cancels:
                        self._ask_to_stop(held, "CANCEL")
            self._rearm()

    def enforce(self, now: float) -> None:
        """Stop what was not confirmed in time."""
        with self._lock:
            for held in self._executing.values():
                if held.revoked_at is None and now >= held.stop_at:
                    self._revoke(held, now)
            self._rearm()

    def stop_all(self, why: Why) -> None:
        with self._lock:
            for held in self._held.values():
                self._ask_to_stop(held, why)

    def executing(self) -> list[UUID]:
        with self._lock:
            return list(self._executing)

    def next_stop(self) -> float | None:
        with self._lock:
            stops = (held.stop_at for held in self._executing.values() if held.revoked_at is None)
            return min(stops, default=None)

    def _extend(self, held: Held, stop_at: float) -> None:
        if stop_at > held.stop_at:
            held.stop_at = stop_at
            tell(held.moved, stop_at)

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
        kill = self._timings.kill
        self._arm(min((held.must_end_by(kill) for held in self._executing.values()), default=None))

    def _arm(self, deadline: float | None) -> None:
        if deadline == self._armed:
            return
        if deadline is None:
            self._timer.disarm()
        else:
            self._timer.arm(deadline)
        self._armed = deadline
