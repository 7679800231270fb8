"""The connection of a migrator: how it is made, takes its turn, gives way and is repeated.

Each transaction holds one advisory lock of this database, so two migrators take turns. No lock is waited for
longer than lock_timeout; then the transaction gives way to the runtime sessions and is repeated.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import TYPE_CHECKING, TypeVar

import anyio
import asyncpg

from schemas import bootstrap
from schemas.report import MigrateFailed, SchemaBusy
from supervisor.errors import DatabaseUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from asyncpg import Record

    from schemas.login import Login

    Connection = asyncpg.Connection[Record]

T = TypeVar("T")

_SESSION_SETTINGS = {
    "application_name": "tenure migrate",
    "search_path": "pg_catalog",
    "lock_timeout": "500ms",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "60s",
    "synchronous_commit": "on",
    "client_min_messages": "warning",
}
_CONNECT_SECONDS = 10
# Somebody else was in the way; the same transaction works later.
_TRANSIENT = (asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError, asyncpg.SerializationError)
# Another migrator of the cluster made it after our plan; a new plan does not list it any more.
_OVERTAKEN = (asyncpg.DuplicateDatabaseError, asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError)


def sql(name: str) -> str:
    return bootstrap()[name].sql


@asynccontextmanager
async def looking(url: str) -> AsyncIterator[Connection]:
    """To look only, as a replica: through a pooler that takes no session settings and keeps no statements."""
    connection = await _open(url, settings={"application_name": "tenure schema"})
    try:
        yield connection
    finally:
        with anyio.CancelScope(shield=True):
            await connection.close(timeout=_CONNECT_SECONDS)


@asynccontextmanager
async def connected(url: str, *, elsewhere: bool = False) -> AsyncIterator[Connection]:
    """To the database of the URL, or `elsewhere`: to one that is there, to create ours from."""
    try:
        connection = await _open(url, "postgres" if elsewhere else None)
    except asyncpg.InvalidCatalogNameError:
        if not elsewhere:
            raise
        connection = await _open(url, "template1")
    try:
        yield connection
    finally:
        with anyio.CancelScope(shield=True):
            await connection.close(timeout=_CONNECT_SECONDS)


@asynccontextmanager
async def turn(connection: Connection) -> AsyncIterator[None]:
    """A transaction that no other migrator of this database runs beside."""
    async with connection.transaction():
        await connection.execute(sql("take_turn"))
        yield


@contextmanager
def naming(step: str) -> Iterator[None]:
    """An error in a file says which; one that is not the file's fault passes, to be repeated."""
    try:
        yield
    except asyncpg.PostgresError as error:
        if _is_transient(error):
            raise
        raise MigrateFailed(step=step, what=str(error)) from error


async def patiently(step: str, seconds: float, once: Callable[[], Awaitable[T]]) -> T:
    """Repeat what others were in the way of, until the seconds are over."""
    give_up_at = anyio.current_time() + seconds
    for attempt in count(1):
        try:
            return await once()
        except asyncpg.PostgresError as error:
            if not _is_worth_repeating(error):
                raise
            if anyio.current_time() > give_up_at:
                raise SchemaBusy(step=step, seconds=seconds, what=str(error)) from error
        # Whoever queued behind our lock request gets its turn, and at least as long as it waited.
        await anyio.sleep(min(0.5 * attempt, 2))
    raise AssertionError("count() does not end")


async def carry_out(connection: Connection, plan: Sequence[Record]) -> list[str]:
    """The statements that this role may run; answers in words what they did."""
    able = [row for row in plan if row["able"]]
    for row in able:
        await connection.execute(row["statement"])
    return list(dict.fromkeys(row["what"] for row in able))


async def is_refused(admin_url: str, login: Login) -> bool:
    """Whether the server says no to this password; any other trouble is no reason to set a new one."""
    if login.password is None:
        return False
    try:
        connection = await asyncpg.connect(
            admin_url, user=login.name, password=login.password, timeout=_CONNECT_SECONDS
        )
    except asyncpg.InvalidPasswordError:
        return True
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        return False
    await connection.close(timeout=_CONNECT_SECONDS)
    return False


async def _open(
    url: str, database: str | None = None, settings: Mapping[str, str] = _SESSION_SETTINGS
) -> Connection:
    try:
        return await asyncpg.connect(
            url,
            database=database,
            timeout=_CONNECT_SECONDS,
            statement_cache_size=0,
            server_settings=dict(settings),
        )
    except asyncpg.InvalidCatalogNameError:
        raise
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise DatabaseUnreachable(what=str(error) or type(error).__name__) from error


def _is_transient(error: asyncpg.PostgresError) -> bool:
    # Two sessions wrote one catalog row: the server has no code of its own for that, and never translates it.
    return isinstance(error, _TRANSIENT) or "tuple concurrently" in str(error)


def _is_worth_repeating(error: asyncpg.PostgresError) -> bool:
    return _is_transient(error) or isinstance(error, _OVERTAKEN)
