"""What a history is made of. Times are seconds; those of one history are all of one clock."""

from typing import Any, NamedTuple


class Move(NamedTuple):
    """A version of a run, as the database wrote it down."""

    run: int
    root: int
    version: int
    before: str | None
    state: str
    continuation: str
    attempt: int
    at: float
    worker: str | None
    epoch: int | None
    claim: str | None
    actor: str
    reason: str | None


class Run(NamedTuple):
    """Where a run stands."""

    id: int
    root: int
    state: str
    version: int
    continuation: str
    attempt: int
    starts: int
    max_attempts: int
    assigned_epoch: int | None
    leader_epoch: int | None
    worker: str | None
    claim: str | None
    retry_of: int | None
    next_attempt: int | None
    error_code: str | None
    finished_by: str | None
    not_before: float
    started_at: float | None
    finished_at: float | None
    stopped_at: float | None
    retry_at: float | None
    cancel_requested_at: float | None


class Worker(NamedTuple):
    id: str
    heartbeat_at: float
    stop_bound: float


class Root(NamedTuple):
    """One piece of work: its runs by attempt, and the moves of each by version."""

    id: int
    runs: tuple[Run, ...]
    moves: dict[int, tuple[Move, ...]]
    workers: dict[str, Worker]


class Tenure(NamedTuple):
    """A line of the log of terms."""

    id: int
    at: float
    epoch: int
    holder: str
    what: str
    system: int | None
    timeline: int | None


class Term(NamedTuple):
    """The one row that the fence locks."""

    epoch: int
    first_epoch: int
    holder: str | None
    system: int | None
    timeline: int | None


class Late(NamedTuple):
    """A completion that was refused."""

    at: float
    run: int
    claim: str
    worker: str
    state: str


class Skip(NamedTuple):
    """Instants without a run, with a reason."""

    first: float
    last: float
    instants: int


class Schedule(NamedTuple):
    """A schedule, what it fired and skipped, between two times within which everything is still there."""

    job: str
    cron: str
    timezone: str
    missed: str
    since: float
    until: float
    fired: tuple[float, ...]
    skips: tuple[Skip, ...] | None


class Call(NamedTuple):
    """A call to the database from its send to its answer; `answered` is None where none came."""

    n: int
    worker: str
    name: str
    op: str
    sent: float
    answered: float | None
    kind: str
    args: dict[str, Any]
    rows: tuple[dict[str, Any], ...]
    sqlstate: str | None


class Effect(NamedTuple):
    """What an executor wrote down itself."""

    t: float
    what: str
    run: int
    root: int
    attempt: int
    epoch: int | None
    claim: str
    pid: int
    host: str


class Offer(NamedTuple):
    """What reached the sink, in the sink's order."""

    seq: int
    t: float
    root: int
    run: int
    attempt: int
    epoch: int
    claim: str
    accepted: bool
    reason: str | None


class Fault(NamedTuple):
    t: float
    fault: str
    target: str
    phase: str


class Death(NamedTuple):
    t: float
    host: str
    pid: int
    code: int | None


class Thing(NamedTuple):
    """An object in a store: what it is called, what it is, and which runs name it."""

    name: str
    sha256: str
    named_by: tuple[int, ...]
    temporary: bool
    age: float
