"""One connection to Redis, as far as this product needs it: commands out, short answers in.

The URL is a secret, so nothing here puts it, or an error's text, into a message.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from redis._parsers import _AsyncRESP2Parser
from redis.asyncio import Connection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from supervisor.errors import BadSettings

ANSWER_BYTES: Final = 16_384

Command = tuple[str | int, ...]


class NotRedis(Exception):
    """An answer that no Redis gives to what it was asked."""


class Line:
    """Used by one task at a time. Whatever goes wrong, also a cancellation, ends the connection."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._connection: Connection = pool.make_connection()  # type: ignore[no-untyped-call]  # the library's
        self._connection.socket_timeout = None  # the caller bounds the whole, whatever the URL says
        self.connected = False

    async def connect(self) -> None:
        """Anew, also where there still is a connection."""
        await self.close()
        try:
            await self._connection.connect()  # type: ignore[no-untyped-call]  # the library's
            self.connected = True
        except BaseException:
            await self.close()
            raise

    async def call(self, commands: Sequence[Command]) -> list[Any]:
        """All at once; their answers in order. An error among them is raised."""
        try:
            await self._connection.send_packed_command(self._connection.pack_commands(commands))
            return [await self._connection.read_response() for _ in commands]
        except BaseException:
            await self.close()
            raise

    async def read(self) -> Any:
        """What comes by itself, on a subscribed line; a read that was cancelled can be repeated."""
        return await self._connection.read_response(disconnect_on_error=False)

    async def send(self, *command: str | int) -> None:
        await self._connection.send_command(*command)

    async def close(self) -> None:
        self.connected = False
        # a connection that cannot even be closed is the library's; it must not end whoever used it
        with suppress(Exception):
            await self._connection.disconnect(nowait=True)


class _ShortAnswers(_AsyncRESP2Parser):
    """The answers we ask for are short; a server that never ends one would fill the memory."""

    _left = ANSWER_BYTES

    async def read_response(self, disable_decoding: bool = False) -> Any:
        self._left = ANSWER_BYTES
        return await super().read_response(disable_decoding)

    async def _read(self, length: int) -> bytes:
        self._spend(length)
        return await super()._read(length)

    async def _readline(self) -> bytes:
        line = await super()._readline()
        self._spend(len(line) + 2)
        return line

    def _spend(self, count: int) -> None:
        self._left -= count
        if count < 0 or self._left < 0:
            raise NotRedis


def open_pool(url: str) -> ConnectionPool:
    """Only to make lines from: redis, rediss (TLS) and unix URLs with everything their parameters can say."""
    try:
        pool = ConnectionPool.from_url(
            url, protocol=2, parser_class=_ShortAnswers, retry=Retry(NoBackoff(), 0), socket_timeout=None
        )
        Line(pool)
    except Exception:  # noqa: BLE001  the library's reasons quote pieces of the URL
        raise BadSettings(what="TENURE_REDIS_URL cannot be read") from None
    return pool
