"""Sessions of test databases that are used again.

A new connection costs the server 10 ms, because its caches are empty, and the test 5 ms. A session that was
given back is like a new one: it has forgotten all settings, locks, statements and temporary tables. One that
is in the middle of something is closed instead.

A connection belongs to an event loop, so only those of the test session's loop are kept: `keep` begins
that. Elsewhere, each session is a new connection.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import asyncpg

from tests.support.slowness import patient

Connection = asyncpg.Connection
CLOSE_SECONDS: Final = 10.0

_idle: Final[defaultdict[str, list[Connection]]] = defaultdict(list)
_borrowed: Final[WeakKeyDictionary[Connection, str]] = WeakKeyDictionary()
_loops: Final[list[asyncio.AbstractEventLoop]] = []


@contextmanager
def keep() -> Iterator[None]:
    """Keep the sessions of the running loop until this ends."""
    _loops.append(asyncio.get_running_loop())
    try:
        yield
    finally:
        _loops.clear()
        for url in list(_idle):
            _close(url)


@asynccontextmanager
async def connected(url: str, **options: str) -> AsyncIterator[Connection]:
    """Borrow a session; after a failure it is closed, because nobody knows its state."""
    connection = await borrow(url, **options)
    try:
        yield connection
    except BaseException:
        connection.terminate()
        raise
    await give_back(connection)


async def value(url: str, query: str, *arguments: object) -> Any:
    async with connected(url) as connection:
        return await connection.fetchval(query, *arguments)


async def borrow(url: str, **options: str) -> Connection:
    connection = _taken(url)
    if connection is None:
        # prepared statements are forgotten with the rest
        connection = await asyncpg.connect(url, statement_cache_size=0)
    for name, value in options.items():  # no server_settings: those are what DISCARD ALL goes back to
        await connection.execute("SELECT set_config($1, $2, false)", name, value)
    _borrowed[connection] = url
    return connection


async def give_back(connection: Connection) -> None:
    url = _borrowed.pop(connection)
    if asyncio.get_running_loop() not in _loops:
        await connection.close(timeout=patient(CLOSE_SECONDS))
    elif connection.is_in_transaction() or not await _forgets(connection):
        connection.terminate()
    else:
        _idle[url].append(connection)


def idle_in(database: str) -> list[int]:
    """Return the process ids of the sessions that nobody has borrowed."""
    return [one.get_server_pid() for url, some in _idle.items() if _is_in(url, database) for one in some]


def forget(database: str) -> None:
    for url in [url for url in _idle if _is_in(url, database)]:
        _close(url)


def _taken(url: str) -> Connection | None:
    idle = _idle[url] if asyncio.get_running_loop() in _loops else []
    while idle:
        connection = idle.pop()
        if not connection.is_closed():
            return connection
    return None


async def _forgets(connection: Connection) -> bool:
    try:
        await connection.execute("DISCARD ALL", timeout=patient(CLOSE_SECONDS))
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        return False
    return True


def _is_in(url: str, database: str) -> bool:
    return url.rpartition("/")[2] == database


def _close(url: str) -> None:
    for connection in _idle.pop(url):
        connection.terminate()
