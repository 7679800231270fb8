"""The one way to the database: named statements over a small pool.

One call is one statement in autocommit. A call that failed after it was sent has an unknown outcome
(OutcomeUnknown): the caller repeats the same call, and the database answers what it had already done. A
connection on which a call was cancelled, timed out or broke is closed, never used again: a late cancel
request could otherwise end somebody else's statement.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import asyncpg

from schemas import Query, queries
from schemas.hosts import each_host
from supervisor.array_types import tell_arrays
from supervisor.calendar_types import tell_calendar
from supervisor.clock import jitter
from supervisor.errors import (
    AdminNeeded,
    BadInput,
    Conflict,
    DatabaseUnreachable,
    LostTenure,
    NotFound,
    OutcomeUnknown,
    QueueFull,
    TenureError,
    UnsafeServer,
)
from supervisor.memory import Memory

Record = asyncpg.Record

CONNECT_SECONDS: Final = 5.0
CALL_SECONDS: Final = 6.0
HEAD_START_SECONDS: Final = 0.25
REPEATABLE: Final = frozenset({"40P01", "40001", "55P03"})
REPEATS: Final = 5
# what the driver raises, besides the server's own errors, when a connection breaks under it
BROKEN: Final = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError)
# statement_timeout, or somebody's pg_cancel_backend
CANCELED: Final = "57014"
# the server is going, coming, read-only or full: nothing was done, or it is not known
DISCONNECTED: Final = ("08", "57P", "25006", "53", CANCELED)


class Canceled(OutcomeUnknown):
    """the server cancelled the call {name}: {what}"""

    # Rolled back, so nothing is unknown about it. It is one of those all the same, because whoever repeats a
    # call without an answer repeats this one; who wants to stop doing so can tell them apart.


REFUSALS: Final[Mapping[str, type[TenureError]]] = {
    "TN021": Conflict,
    "TN022": BadInput,
    "TN023": QueueFull,
    "TN024": AdminNeeded,
}


def _translated(error: asyncpg.PostgresError, name: str) -> TenureError | None:
    """Our own refusals, by SQLSTATE; None = a fault of ours that must be seen as it is."""
    state = error.sqlstate or ""
    what = str(error)
    if state == "TN001":
        return LostTenure(what=what)
    if state in {"TN002", "TN003"}:
        return UnsafeServer(what=what)
    if state == "TN020":
        _, kind, name = what.split(" ", 2)
        return NotFound(kind=kind, name=name)
    if state in REFUSALS:
        return REFUSALS[state](what=what)
    if state.startswith(("22", "23")):
        return BadInput(what=what)
    if state.startswith("28") or state == "3D000":
        return DatabaseUnreachable(what=what)
    if state.startswith(DISCONNECTED):
        return (Canceled if state == CANCELED else OutcomeUnknown)(name=name, what=what)
    return None


async def connect(
    url: str, *, application_name: str, cached_statements: int = 200, memory: Memory | None = None
) -> asyncpg.Connection:
    """A new connection, or DatabaseUnreachable with a reason that holds no secret."""
    options = {
        "timeout": CONNECT_SECONDS,
        "statement_cache_size": cached_statements,
        "server_settings": {"application_name": application_name[:63]},
    }
    try:
        # the driver would give the first host as much time as all of them
        return await _first([_connect(one, options, memory) for one in each_host(url)])
    except asyncpg.PostgresError as error:
        raise DatabaseUnreachable(what=str(error)) from None
    except (*BROKEN, TimeoutError, ssl.SSLError, ValueError) as error:
        raise DatabaseUnreachable(what=f"{type(error).__name__}: {error}") from None


async def _connect(url: str, options: dict[str, Any], memory: Memory | None) -> asyncpg.Connection:
    connection: asyncpg.Connection = await asyncpg.connect(url, **options)
    tell_calendar(connection)
    tell_arrays(connection)
    if memory is not None:
        try:
            await _require_current(connection, memory)
        except BaseException:
            connection.terminate()
            raise
    return connection


async def _require_current(connection: asyncpg.Connection, memory: Memory) -> None:
    """What a server says that a failover has left behind was true once."""
    (here,) = await connection.fetch(queries()["read_server"].sql)
    place = (here["system_identifier"], here["timeline"])
    if memory.left_behind(*place):
        raise DatabaseUnreachable(what=f"a failover has left this server behind on timeline {place[1]}")
    _TIMELINES[connection] = place


async def _first(attempts: Sequence[Coroutine[Any, Any, asyncpg.Connection]]) -> asyncpg.Connection:
    """Each host gets a head start over the next one, and none can hold up the others by not answering."""
    if len(attempts) == 1:
        return await attempts[0]
    tasks: list[asyncio.Task[asyncpg.Connection]] = []
    waiting = list(attempts)
    try:
        while True:
            if waiting:
                tasks.append(asyncio.create_task(waiting.pop(0)))
            pending = [task for task in tasks if not task.done()]
            if pending:
                head_start = HEAD_START_SECONDS if waiting else None
                await asyncio.wait(pending, timeout=head_start, return_when=asyncio.FIRST_COMPLETED)
            if won := [task for task in tasks if task.done() and task.exception() is None]:
                return tasks.pop(tasks.index(won[0])).result()
            if not waiting and all(task.done() for task in tasks):
                errors = [error for task in tasks if (error := task.exception())]
                # what a server said is more than that another did not answer
                raise next(
                    (error for error in errors if isinstance(error, asyncpg.PostgresError)), errors[-1]
                )
    finally:
        for attempt in waiting:
            attempt.close()
        for task in tasks:
            task.cancel()
            task.add_done_callback(_end)


def _end(task: "asyncio.Task[asyncpg.Connection]") -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()


class Store:
    def __init__(
        self,
        url: str,
        *,
        name: str = "tenure",
        size: int = 8,
        pooled: bool = False,
        memory: Memory | None = None,
    ) -> None:
        """With a memory no server is asked that a failover has left behind; a pooler hides who it is."""
        self._url = url
        self._memory = None if pooled else memory
        self._name = name
        self._cache = 0 if pooled else 200
        self._room = asyncio.Semaphore(size)
        self._idle: list[asyncpg.Connection] = []
        self._closed = False

    async def rows(self, query: str | Query, *args: Any, timeout: float | None = None) -> Sequence[Record]:
        """Run a statement, by name or rendered. Deadlocks and lock time-outs did nothing and are repeated.

        A `timeout` bounds all of it. Without one the call has CALL_SECONDS from when it has a connection: on
        a slow way a new one costs more turns than the call, and would leave it no time to be answered in.
        """
        name, sql = (query, queries()[query].sql) if isinstance(query, str) else (query.name, query.sql)
        within = CALL_SECONDS if timeout is None else timeout
        for turn in range(REPEATS):
            try:
                async with (
                    self._deadline(name, within) as bound,
                    self._connection() as connection,
                ):
                    if timeout is None:
                        bound.reschedule(asyncio.get_running_loop().time() + CALL_SECONDS)
                    rows: Sequence[Record] = await connection.fetch(sql, *args)
                    if connection in _UNSURE:
                        raise OutcomeUnknown(name=name, what="the commit was not confirmed by the standby")
                    return rows
            except asyncpg.PostgresError as error:
                if error.sqlstate in REPEATABLE:
                    if turn < REPEATS - 1:
                        await asyncio.sleep(jitter(0.03 * (turn + 1)))
                        continue
                    # nothing was done, and somebody may be in the way for hours: no reason to end a replica
                    raise Canceled(name=name, what=str(error)) from error
                if (translated := _translated(error, name)) is not None:
                    raise translated from error
                raise
            except BROKEN as error:
                raise OutcomeUnknown(name=name, what=f"{type(error).__name__}: {error}") from error
        raise AssertionError("unreachable")

    async def row(self, query: str, *args: Any, timeout: float | None = None) -> Record | None:
        rows = await self.rows(query, *args, timeout=timeout)
        return rows[0] if rows else None

    async def value(self, query: str, *args: Any, timeout: float | None = None) -> Any:
        row = await self.row(query, *args, timeout=timeout)
        return row[0] if row else None

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=1)
            except (*BROKEN, TimeoutError, asyncpg.PostgresError):
                connection.terminate()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection]:
        async with self._room:
            connection = await self._take()
            try:
                yield connection
            except asyncpg.PostgresError as error:
                if (error.sqlstate or "").startswith(DISCONNECTED):
                    connection.terminate()
                self._give_back(connection)
                raise
            except BaseException:
                _UNSURE.discard(connection)
                connection.terminate()
                raise
            self._give_back(connection)

    async def _take(self) -> asyncpg.Connection:
        while self._idle:
            connection = self._idle.pop()
            if self._left_behind(connection):
                connection.terminate()
            if not connection.is_closed():
                return connection
        connection = await connect(
            self._url, application_name=self._name, cached_statements=self._cache, memory=self._memory
        )
        connection.add_log_listener(_watch_notices)
        return connection

    @asynccontextmanager
    async def _deadline(self, query: str, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        try:
            async with asyncio.timeout(seconds) as bound:
                yield bound
        except TimeoutError as error:
            # who does not answer on one connection will hardly answer on the others
            while self._idle:
                self._idle.pop().terminate()
            raise OutcomeUnknown(name=query, what=f"no answer within {seconds:g} s") from error

    def _left_behind(self, connection: asyncpg.Connection) -> bool:
        place = _TIMELINES.get(connection)
        return self._memory is not None and place is not None and self._memory.left_behind(*place)

    def _give_back(self, connection: asyncpg.Connection) -> None:
        if self._closed or connection.is_closed() or connection in _UNSURE:
            _UNSURE.discard(connection)
            connection.terminate()
        else:
            self._idle.append(connection)


_UNSURE: set[asyncpg.Connection] = set()
_TIMELINES: WeakKeyDictionary[asyncpg.Connection, tuple[int, int]] = WeakKeyDictionary()


def _watch_notices(connection: Any, message: asyncpg.PostgresLogMessage) -> None:
    # 01000 after a cancelled wait for the standby: "committed locally, but might not have been replicated"
    if message.sqlstate == "01000" and "replicat" in (message.detail or "") + (message.message or ""):
        _UNSURE.add(connection)
