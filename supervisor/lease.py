"""The lease contract of one claimable table, as data. Pure: no clock, no connection.

A row is claimable, or running under somebody's lease, or neither. Every move is a `Path`: the state the row
gets and every other column that is written, so that the worker's rights (column GRANTs) follow from the
contract and the database permits nothing else. `lease_sql` renders the statements.

What every contract has in common:

- the token (`claim_id`) is new with each claim and the only key that writes to the row; it stays with a
  recorded outcome, so that a repeated finish is known, and goes when the row is recovered or released;
- a running row is stale when its expiry is NULL or not later than now (where a table has no expiry: its
  heartbeat is NULL or `lease_seconds` old). Stale rows take the `stale` path, by whoever comes first: the
  next claim or the control plane. A `stale` path without a state leaves the row for another owner;
- written without being named, because the lease is made of them: claim: state, owner, heartbeat, expiry,
  token; beat: heartbeat, expiry; stale and release: state, and owner, heartbeat, expiry, token become NULL;
  the outcomes: state, and the expiry becomes NULL.

Names, types and fragments are checked here, once. `only`, `ready` and `also` are SQL of the author's own,
with `t` for the row; nothing that came from outside may stand in them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TABLE: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}\.[a-z_][a-z0-9_]{0,62}")
_TYPE: Final = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?( [a-z ]+)?(\(\d+(,\d+)?\))?")
_STATE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_ORDER: Final = re.compile(r"(?P<column>[a-z_][a-z0-9_]{0,62})( (?:ASC|DESC))?( NULLS (?:FIRST|LAST))?")
_FORBIDDEN: Final = re.compile(r";|--|/\*|\$|\x00")

Right = Literal["INSERT", "DELETE"]
Ending = Literal["done", "retry", "snooze", "cancel"]


class BadLease(ValueError):
    """A contract that cannot hold."""


class Write(Enum):
    """What a path writes into a column."""

    NOW = "now"
    NULL = "null"
    ZERO = "zero"
    INCREMENT = "increment"
    CODE = "code"
    """The error code: the handler's, or the contract's own on the stale path."""
    MESSAGE = "message"
    PROBLEM = "problem"
    """Code and message as one text."""
    DUE = "due"
    """The instant of the next attempt: what the handler asked for, else the back-off."""
    STATE = "state"
    OWNER = "owner"
    TOKEN = "token"  # noqa: S105  not a secret
    EXPIRY = "expiry"
    GIVEN = "given"


OURS: Final = frozenset({Write.STATE, Write.OWNER, Write.TOKEN, Write.EXPIRY, Write.GIVEN})
"""Written where the contract implies it, never by an author's path."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Path:
    """One way a row changes. `sets`: columns (with their types) that an outcome may fill; None leaves them.

    `gives` are values an outcome carries that are no columns of the row, for `also`: one more statement, in
    the same transaction and for the recorded rows only, over the relation `recorded` (key, sets and gives).
    """

    state: str | None = None
    writes: Mapping[str, Write] = field(default_factory=dict)
    sets: Mapping[str, str] = field(default_factory=dict)
    gives: Mapping[str, str] = field(default_factory=dict)
    also: str | None = None

    def uses(self, *writes: Write) -> bool:
        return any(write in writes for write in self.writes.values())


@dataclass(frozen=True, kw_only=True, eq=False)
class Backoff:
    """Doubles with each counted failure. After a handler's failure it is spread over its upper half."""

    first_seconds: float = 10.0
    cap_seconds: float = 3600.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Lease:
    table: str
    key: Mapping[str, str]
    state: str = "status"
    state_type: str = "text"
    claimable: tuple[str, ...] = ("pending",)
    running: str = "running"
    only: str = "true"
    """Which rows are this contract's; for all of its statements."""
    ready: str = "true"
    """Which of the claimable ones are due."""
    order: tuple[str, ...]
    owner: str = "worker_id"
    heartbeat: str = "worker_heartbeat_at"
    expiry: str | None = "lease_expires_at"
    token: str = "claim_id"  # noqa: S105  the name of a column
    lease_seconds: float
    timeout_seconds: float | None = None

    claim: Path = field(default_factory=Path)
    beat: Path = field(default_factory=Path)
    stale: Path
    done: Path
    retry: Path
    exhausted: Path | None = None
    """In place of `retry` and `stale` when the attempts are used up."""
    cancel: Path | None = None
    snooze: Path | None = None
    release: Path | None = None
    """Given back before its end, by a replica that leaves. None: the row waits until its lease is over."""

    attempts: str | None = None
    """The column that counts; whichever path INCREMENTs it."""
    max_attempts: int | str | None = None
    """A number, or the column that holds it."""
    backoff: Backoff = field(default_factory=Backoff)
    stale_code: str = "LEASE_EXPIRED"
    stale_message: str = "its lease ran out before the work was reported"

    columns: tuple[str, ...] = ()
    """What a handler gets to see of the row."""
    json_columns: tuple[str, ...] = ()
    rights: tuple[Right, ...] = ()
    """What the worker may do with whole rows, beyond the paths."""
    label: str = ""
    """Tells contracts of one table apart."""

    def __post_init__(self) -> None:
        complaints = [*self._bad_names(), *self._bad_fragments(), *self._bad_relations()]
        if complaints:
            raise BadLease(f"{self.table}: {'; '.join(complaints)}")

    @property
    def name(self) -> str:
        return f"{self.table}/{self.label}" if self.label else self.table

    @property
    def paths(self) -> Mapping[str, Path]:
        """Every path the contract has, by name."""
        names = ("claim", "beat", "stale", "done", "retry", "exhausted", "cancel", "snooze", "release")
        return {name: path for name in names if (path := getattr(self, name)) is not None}

    @property
    def order_columns(self) -> tuple[str, ...]:
        return tuple(term.split(" ")[0] for term in self.order)

    def assignments(self, path_name: str) -> Mapping[str, Write]:
        """Every column that a path writes, with what; the contract's own word wins over what is implied."""
        path = self.paths[path_name]
        match path_name:
            case "claim":
                implied = {self.owner: Write.OWNER, self.heartbeat: Write.NOW, self.token: Write.TOKEN}
                implied |= self._expiry(Write.EXPIRY) | {self.state: Write.STATE}
            case "beat":
                implied = {self.heartbeat: Write.NOW} | self._expiry(Write.EXPIRY)
            case "stale" if path.state is None:
                implied = {self.token: Write.NULL}
            case "stale" | "release":
                implied = self.unbound()
            case _:
                implied = self._expiry(Write.NULL)
        if path.state is not None:
            implied[self.state] = Write.STATE
        return implied | dict(path.writes) | dict.fromkeys(path.sets, Write.GIVEN)

    def unbound(self) -> dict[str, Write]:
        """The row belongs to nobody."""
        return dict.fromkeys((self.owner, self.heartbeat, self.token), Write.NULL) | self._expiry(Write.NULL)

    def written(self, path_name: str) -> frozenset[str]:
        """The whitelist of a path."""
        return frozenset(self.assignments(path_name))

    def writable(self) -> frozenset[str]:
        return frozenset().union(*(self.written(name) for name in self.paths))

    def recovery_columns(self) -> frozenset[str]:
        """What the control plane writes when it recovers."""
        used_up = [*self.unbound(), *self.written("exhausted")] if self.exhausted is not None else []
        return self.written("stale") | frozenset(used_up)

    def ending(self, wanted: Ending) -> Ending:
        """The path that stands for an outcome: without a way to cancel or snooze, a failure."""
        return wanted if getattr(self, wanted) is not None else "retry"

    def _expiry(self, write: Write) -> dict[str, Write]:
        return {} if self.expiry is None else {self.expiry: write}

    def _bad_names(self) -> Iterable[str]:
        if not _TABLE.fullmatch(self.table):
            yield "the table needs a name of the form schema.table"
        names = [
            self.state,
            self.owner,
            self.heartbeat,
            self.token,
            *self.key,
            *self.columns,
            *self.json_columns,
        ]
        names += [name for name in (self.expiry, self.attempts) if name is not None]
        names += [self.max_attempts] if isinstance(self.max_attempts, str) else []
        types = [self.state_type, *self.key.values()]
        states = [*self.claimable, self.running]
        for path in self.paths.values():
            names += [*path.writes, *path.sets, *path.gives]
            types += [*path.sets.values(), *path.gives.values()]
            states += [] if path.state is None else [path.state]
        yield from _unfit("column", names, _NAME)
        yield from _unfit("type", types, _TYPE)
        yield from _unfit("state", states, _STATE)
        yield from _unfit("order", self.order, _ORDER)

    def _bad_fragments(self) -> Iterable[str]:
        fragments = [self.only, self.ready, self.stale_code, self.stale_message]
        fragments += [path.also for path in self.paths.values() if path.also is not None]
        yield from (f"not a plain fragment: {text!r}" for text in fragments if _FORBIDDEN.search(text))

    def _bad_relations(self) -> Iterable[str]:
        lease_columns = {self.token, *self.key}
        for name, path in self.paths.items():
            if lease_columns & {*path.writes, *path.sets}:
                yield f"path {name} writes the key or the token"
            if set(path.sets) & {*path.writes, self.state, self.owner, self.heartbeat, self.expiry}:
                yield f"path {name} lets an outcome set a column that the contract writes"
            if path.uses(*OURS):
                yield f"path {name} writes what only the contract itself implies"
            if path.also is not None and name not in {"done", "retry", "cancel", "snooze"}:
                yield f"path {name} is no outcome and has no `also`"
        rules = [
            (
                bool(self.key) and bool(self.claimable) and bool(self.order),
                "key, claimable and order are needed",
            ),
            (self.running not in self.claimable, "the running state is not claimable"),
            (self.claim.state is self.beat.state is None, "claim and beat have the running state"),
            (self.lease_seconds > 0, "lease_seconds must be greater than 0"),
            (
                all(p is None or p.state not in {None, self.running} for p in self._outcomes()),
                "an outcome needs a state",
            ),
            (self.stale.state != self.running, "stale rows that stay need a `stale` path without a state"),
            (
                (self.max_attempts is None) == (self.exhausted is None),
                "max_attempts and `exhausted` go together",
            ),
            (
                self.max_attempts is None or self.attempts is not None,
                "max_attempts needs the column that counts",
            ),
            (set(self.json_columns) <= set(self.columns), "json_columns are some of the columns"),
            (
                not self._needs_count() or self.attempts is not None,
                "DUE needs the column that counts the attempts",
            ),
        ]
        yield from (complaint for holds, complaint in rules if not holds)

    def _outcomes(self) -> Sequence[Path | None]:
        return (self.done, self.retry, self.exhausted, self.cancel, self.snooze)

    def _needs_count(self) -> bool:
        return self.stale.uses(Write.DUE) or self.retry.uses(Write.DUE)


def _unfit(what: str, texts: Iterable[str], form: re.Pattern[str]) -> Iterable[str]:
    return (f"not a {what}: {text!r}" for text in texts if not form.fullmatch(text))
