"""What an author of work sees: an actor, the claim it is handed, and its tools.

A handler runs on the event loop and must not block it. It is cancelled when its claim is lost, cancelled,
timed out or drained: it then ends everything it started within `tools.kill_seconds` and lets the
cancellation pass. A handler that has not ended by then takes the replica with it (the dead man's timer),
because work that cannot be stopped could otherwise run twice.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from supervisor.artifacts import Artifacts
from supervisor.config import Settings
from supervisor.lease import Lease
from supervisor.outcome import Outcome
from supervisor.parameters import TaskType
from supervisor.store import Store


@dataclass(frozen=True, init=False)
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

    def __init__(  # noqa: PLR0917  its fields, in their order
        self,
        run_id: int,
        root_id: int,
        attempt: int,
        epoch: int,
        claim_id: UUID,
        domain: str,
        action: str | None,
        payload: Mapping[str, Any],
        timeout_seconds: float | None,
        key: Any = None,
    ) -> None:
        # one for every run and row: a dataclass that refuses changes takes thrice as long to make itself
        fields = self.__dict__
        fields["run_id"] = run_id
        fields["root_id"] = root_id
        fields["attempt"] = attempt
        fields["epoch"] = epoch
        fields["claim_id"] = claim_id
        fields["domain"] = domain
        fields["action"] = action
        fields["payload"] = payload
        fields["timeout_seconds"] = timeout_seconds
        fields["key"] = key


@dataclass(frozen=True, slots=True)
class Place:
    """Where a handler works: what its replica has for it. `store` has the worker's rights and no more."""

    worker_id: str
    settings: Settings
    store: Store
    maintenance: Store
    """CHECKPOINT and VACUUM; the worker's own where TENURE_MAINTENANCE_DATABASE_URL is not set."""
    artifacts: Artifacts | None = None


class Tools(Protocol):
    kill_seconds: float

    @property
    def place(self) -> Place:
        """What this replica has for its handlers."""

    @property
    def equipment(self) -> Any:
        """Of a leased row: what the actor's `equip` gave, the same for all its rows on this replica."""

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
    """A kind of work. `check` names what is wrong with a definition's payload before it is stored.

    `task_types` declare what callers may give to its runs; the database refuses anything else. For an actor
    that declares none, each definition declares its own parameters.

    With a `lease` it works on the rows of that table, without a leader: at most `slots` at a time
    (TENURE_SLOTS where None; a function where settings of its own decide), and up to `ahead` more are
    claimed already, so that short work does not wait. `equip` opens what all of a replica's calls share, such
    as a pool of children; it is closed when the last of them has ended.
    """

    domain: str
    handle: Handler
    action: str | None = None
    check: Callable[[Mapping[str, Any]], Sequence[str]] = no_complaints
    task_types: Sequence[TaskType] = ()
    lease: Lease | None = None
    slots: int | Callable[[], int] | None = None
    ahead: int = 0
    equip: Callable[[Place], AbstractAsyncContextManager[Any]] | None = None
    fits: Callable[[Settings], bool] | None = None
    """Whether a replica with these settings can do this work at all; one that cannot claims none of it."""
    waits: bool = False
    """Its runs only wait for rows that other actors work on: they have slots of their own (pools.py)."""

    @property
    def name(self) -> str:
        """The domain for runs; the table too for leased rows, because a domain has several."""
        return self.domain if self.lease is None else f"{self.domain}:{self.lease.name}"


def waiting_domains(actors: Iterable[Actor]) -> frozenset[str]:
    """The domains whose runs only wait."""
    return frozenset(actor.domain for actor in actors if actor.lease is None and actor.waits)
