"""The one way to the database: named statements over a small pool.

One call is one statement in autocommit. A call that failed after it was sent has an unknown outcome
(OutcomeUnknown): the caller repeats the same call, and the database answers what it had already done. A
connection on which a call was cancelled, timed out or broke is closed, never used again: a late cancel
request could otherwise end somebody else's statement.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from schemas import Query, queries
from supervisor.clock import jitter
from supervisor.errors import (
    BadInput,
    Conflict,
    DatabaseUnreachable,
    LostTenure,
    NotFound,
    OutcomeUnknown,
    TenureError,
    UnsafeServer,
)

Record = asyncpg.Record

CONNECT_SECONDS: Final = 5.0
CALL_SECONDS: Final = 6.0
REPEATABLE: Final = frozenset({"40P01", "40001", "55P03"})
REPEATS: Final = 5
# what the driver raises, besides the server's own errors, when a connection breaks under it
BROKEN: Final = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError)
# the server is going, coming, read-only or full: nothing was done, or it is not known
DISCONNECTED: Final = ("08", "57P", "25006", "53", "57014")


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
    if state == "TN021":
        return Conflict(what=what)
    if state == "TN022" or state.startswith(("22", "23")):
        return BadInput(what=what)
    if state.startswith("28") or state == "3D000":
        return DatabaseUnreachable(what=what)
    if state.startswith(DISCONNECTED):
        return OutcomeUnknown(name=name, what=what)
    return None


async def connect(url: str, *, application_name: str, cached_statements: int = 200) -> asyncpg.Connection:
    """A new connection, or DatabaseUnreachable with a reason that holds no secret."""
    try:
        return await asyncpg.connect(
            url,
            timeout=CONNECT_SECONDS,
            statement_cache_size=cached_statements,
            server_settings={"application_name": application_name[:63]},
        )
    except asyncpg.PostgresError as error:
        raise DatabaseUnreachable(what=str(error)) from None
    except (*BROKEN, TimeoutError, ssl.SSLError, ValueError) as error:
        raise DatabaseUnreachable(what=f"{type(error).__name__}: {error}") from None


class Store:
    def __init__(self, url: str, *, name: str = "tenure", size: int = 8, pooled: bool = False) -> None:
        self._url = url
        self._name = name
        self._cache = 0 if pooled else 200
        self._room = asyncio.Semaphore(size)
        self._idle: list[asyncpg.Connection] = []
        self._closed = False

    async def rows(self, query: str | Query, *args: Any, timeout: float = CALL_SECONDS) -> Sequence[Record]:
        """Run a statement, by name or rendered. Deadlocks and lock time-outs did nothing and are repeated."""
        name, sql = (query, queries()[query].sql) if isinstance(query, str) else (query.name, query.sql)
        for turn in range(REPEATS):
            try:
                async with _deadline(name, timeout), self._connection() as connection:
                    rows: Sequence[Record] = await connection.fetch(sql, *args)
                    if connection in _UNSURE:
                        raise OutcomeUnknown(name=name, what="the commit was not confirmed by the standby")
                    return rows
            except asyncpg.PostgresError as error:
                if error.sqlstate in REPEATABLE and turn < REPEATS - 1:
                    await asyncio.sleep(jitter(0.03 * (turn + 1)))
                    continue
                if (translated := _translated(error, name)) is not None:
                    raise translated from error
                raise
            except BROKEN as error:
                raise OutcomeUnknown(name=name, what=f"{type(error).__name__}: {error}") from error
        raise AssertionError("unreachable")

    async def row(self, query: str, *args: Any, timeout: float = CALL_SECONDS) -> Record | None:
        rows = await self.rows(query, *args, timeout=timeout)
        return rows[0] if rows else None

    async def value(self, query: str, *args: Any, timeout: float = CALL_SECONDS) -> Any:
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
            if not connection.is_closed():
                return connection
        connection = await connect(self._url, application_name=self._name, cached_statements=self._cache)
        connection.add_log_listener(_watch_notices)
        return connection

    def _give_back(self, connection: asyncpg.Connection) -> None:
        if self._closed or connection.is_closed() or connection in _UNSURE:
            _UNSURE.discard(connection)
            connection.terminate()
        else:
            self._idle.append(connection)


_UNSURE: set[asyncpg.Connection] = set()


def _watch_notices(connection: Any, message: asyncpg.PostgresLogMessage) -> None:
    # 01000 after a cancelled wait for the standby: "committed locally, but might not have been replicated"
    if message.sqlstate == "01000" and "replicat" in (message.detail or "") + (message.message or ""):
        _UNSURE.add(connection)


@asynccontextmanager
async def _deadline(query: str, seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise OutcomeUnknown(name=query, what=f"no answer within {seconds:g} s") from error
