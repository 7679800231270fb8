"""For applications: trigger jobs and emit events, also inside the application's own transaction.

    async with Client("postgresql://tenure_client:...@db/app") as tenure:
        run = await tenure.trigger("invoice", {"order": 42}, key="order-42")
        ended = await tenure.wait(run.id, timeout=60)

With a connection of your own, work appears exactly if your transaction commits:

    async with connection.transaction():
        await connection.execute("UPDATE orders SET paid = true WHERE id = $1", 42)
        await enqueue(connection, "invoice", {"order": 42}, key="order-42")

The payload holds arguments for the parameters that the job declares; anything else is refused.

`enqueue` and `emit` take anything with asyncpg's `fetchrow`, `enqueue_many` anything with its `fetch`. From
another driver or language, call the SQL functions `supervisor.enqueue(job, payload, key, not_before,
priority)`, `supervisor.enqueue_many(job, payloads, keys, not_before, priority)` and `supervisor.emit(type,
payload, dedupe_key)`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol, Self

import anyio

from schemas import queries
from supervisor.clock import boottime
from supervisor.errors import BadInput, NotFound, TenureError
from supervisor.jobrun import TERMINAL
from supervisor.store import Record, Store
from supervisor.stored_json import decode

POLL_SECONDS = 0.1
POLL_MAX_SECONDS = 2.0
MANY_AT_ONCE = 5000


class StillRunning(TenureError):
    """run {id} is {state} after {seconds:g} s"""

    hint = "`tenure run why {id}` says what it waits for"


class Connection(Protocol):
    async def fetchrow(self, query: str, *args: Any) -> Any: ...


class Many(Protocol):
    async def fetch(self, query: str, *args: Any) -> Any: ...


class Triggered(NamedTuple):
    """`created` is False when the key was used before: this is that run."""

    id: int
    state: str
    created: bool


@dataclass(frozen=True, slots=True)
class Emitted:
    id: int
    created: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """The newest attempt of a run. `final`: it has ended and no further attempt follows."""

    id: int
    root_id: int
    attempt: int
    state: str
    final: bool
    result: Mapping[str, Any] | None
    error_code: str | None
    error_message: str | None

    @property
    def succeeded(self) -> bool:
        return self.state == "SUCCEEDED"


async def enqueue(
    connection: Connection,
    job: str,
    payload: Mapping[str, Any] | None = None,
    *,
    key: str | None = None,
    not_before: datetime | None = None,
    priority: int | None = None,
) -> Triggered:
    """Inside the caller's transaction, if there is one."""
    row = await connection.fetchrow(
        queries()["enqueue_run"].sql, job, _encoded(payload or {}), key, not_before, priority
    )
    return Triggered(row["id"], row["state"], row["created"])


async def enqueue_many(
    connection: Many,
    job: str,
    payloads: Sequence[Mapping[str, Any]],
    *,
    keys: Sequence[str | None] | None = None,
    not_before: datetime | None = None,
    priority: int | None = None,
) -> list[Triggered]:
    """Many runs of one job, all or none of them; in the caller's transaction, if there is one."""
    rows = await connection.fetch(
        queries()["enqueue_runs"].sql,
        job,
        _all_encoded(payloads),
        None if keys is None else list(keys),
        not_before,
        priority,
    )
    # by their names, because a driver may answer with mappings
    return [Triggered(row["id"], row["state"], row["created"]) for row in rows]


def _encoded(payload: Mapping[str, Any]) -> str:
    return json.dumps(dict(payload)) if len(payload) else "{}"


def _all_encoded(payloads: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is one and the same object, run after run, is encoded once."""
    texts: list[str] = []
    before: Mapping[str, Any] | None = None
    text = ""
    for payload in payloads:
        if payload is not before:
            before, text = payload, _encoded(payload)
        texts.append(text)
    return texts


async def emit(
    connection: Connection,
    event_type: str,
    payload: Mapping[str, Any] | None = None,
    *,
    dedupe_key: str | None = None,
) -> Emitted:
    """Inside the caller's transaction, if there is one."""
    row = await connection.fetchrow(
        queries()["emit_event"].sql, event_type, _encoded(payload or {}), dedupe_key
    )
    return Emitted(row["id"], row["created"])


class Client:
    """A pool of its own, for what needs no transaction of the application's."""

    def __init__(self, url: str, *, size: int = 4, pooled: bool = False) -> None:
        self._store = Store(url, name="tenure/client", size=size, pooled=pooled)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._store.close()

    async def trigger(
        self,
        job: str,
        payload: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        not_before: datetime | None = None,
        priority: int | None = None,
    ) -> Triggered:
        return await enqueue(
            _Rows(self._store, "enqueue_run"), job, payload, key=key, not_before=not_before, priority=priority
        )

    async def trigger_many(
        self,
        job: str,
        payloads: Sequence[Mapping[str, Any]],
        *,
        keys: Sequence[str | None] | None = None,
        not_before: datetime | None = None,
        priority: int | None = None,
    ) -> list[Triggered]:
        """In calls of MANY_AT_ONCE, each all or nothing; with keys, a repetition makes nothing twice."""
        if keys is not None and len(keys) != len(payloads):
            raise BadInput(what="as many keys as payloads, or none")
        made: list[Triggered] = []
        for first in range(0, len(payloads), MANY_AT_ONCE):
            part = slice(first, first + MANY_AT_ONCE)
            made += await enqueue_many(
                _Rows(self._store, "enqueue_runs"),
                job,
                payloads[part],
                keys=None if keys is None else keys[part],
                not_before=not_before,
                priority=priority,
            )
        return made

    async def emit(
        self, event_type: str, payload: Mapping[str, Any] | None = None, *, dedupe_key: str | None = None
    ) -> Emitted:
        return await emit(_Rows(self._store, "emit_event"), event_type, payload, dedupe_key=dedupe_key)

    async def outcome(self, run_id: int) -> Outcome:
        row = await self._store.row("read_outcome", run_id)
        if row is None:
            raise NotFound(kind="run", name=run_id)
        return Outcome(
            id=row["id"],
            root_id=row["root_id"],
            attempt=row["attempt"],
            state=row["state"],
            final=row["state"] in TERMINAL and not row["owed"],
            result=decode(row["result"]) if row["result"] else None,
            error_code=row["error_code"],
            error_message=row["error_message"],
        )

    async def wait(self, run_id: int, timeout: float | None = None) -> Outcome:
        """Until the run has ended and no further attempt follows; StillRunning after `timeout` seconds."""
        began = boottime()
        pause = POLL_SECONDS
        while True:
            outcome = await self.outcome(run_id)
            waited = boottime() - began
            if outcome.final:
                return outcome
            if timeout is not None and waited >= timeout:
                raise StillRunning(id=outcome.id, state=outcome.state, seconds=waited)
            await anyio.sleep(pause if timeout is None else min(pause, timeout - waited))
            pause = min(pause * 1.5, POLL_MAX_SECONDS)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The store as a connection: repeats what must be repeated, and translates what is refused."""

    store: Store
    name: str

    async def fetchrow(self, _query: str, *args: Any) -> Record | None:
        return await self.store.row(self.name, *args)

    async def fetch(self, _query: str, *args: Any) -> Sequence[Record]:
        return await self.store.rows(self.name, *args)
