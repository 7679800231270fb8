"""What an author of work sees: an actor, the claim it is handed, and its tools.

A handler runs on the event loop and must not block it. It is cancelled when its claim is lost, cancelled,
timed out or drained: it then ends everything it started within `tools.kill_seconds` and lets the
cancellation pass. A handler that has not ended by then takes the replica with it (the dead man's timer),
because work that cannot be stopped could otherwise run twice.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from supervisor.lease import Lease
from supervisor.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt at one run. (run_id, attempt, epoch, claim_id) is the fencing token for effects outside.

    Of a leased row: `key` (a tuple where the key has several columns), `claim_id`, the columns its contract
    shows as `payload`, and the attempts where the table counts them; run_id, root_id and epoch are 0.
    """

    run_id: int
    root_id: int
    attempt: int
    epoch: int
    claim_id: UUID
    domain: str
    action: str | None
    payload: Mapping[str, Any]
    timeout_seconds: float | None
    key: Any = None


class Tools(Protocol):
    kill_seconds: float

    async def log(self, stream: str, data: bytes) -> None:
        """Append to the run's log; waits when the database is slower than the work."""

    def stop_deadline(self) -> float:
        """The boottime by which this claim's work must have stopped; answered beats move it forward."""

    def on_stop_deadline(self, callback: Callable[[float], None]) -> None:
        """Call back whenever the deadline moves; in the thread of beats, so quickly and without blocking."""

    def progress(self, **columns: Any) -> None:
        """Of a leased row: columns that the next heartbeat writes along. A run has none."""


Handler = Callable[[Claim, Tools], Awaitable[Outcome]]


def no_complaints(_payload: Mapping[str, Any]) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Actor:
    """A kind of work. `check` names what is wrong with a payload before it is stored.

    With a `lease` it works on the rows of that table, without a leader: at most `slots` at a time
    (TENURE_SLOTS where None), and up to `ahead` more are claimed already, so that short work does not wait.
    """

    domain: str
    handle: Handler
    action: str | None = None
    check: Callable[[Mapping[str, Any]], Sequence[str]] = no_complaints
    lease: Lease | None = None
    slots: int | None = None
    ahead: int = 0

    @property
    def name(self) -> str:
        """The domain for runs; the table too for leased rows, because a domain has several."""
        return self.domain if self.lease is None else f"{self.domain}:{self.lease.name}"
