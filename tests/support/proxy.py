"""A TCP proxy that misbehaves on demand, for partitions without root.

What a cut holds back is delivered after the heal, as TCP would retransmit it; nothing is lost inside a
connection that survives. While a direction is cut, new connections are accepted and stay silent, as with a
firewall that drops. It runs in the test's event loop: a test that blocks the loop cuts everything.
"""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.support.databases import with_port

CHUNK = 65536


class Proxy:
    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = (target.hostname or "127.0.0.1", target.port or 5432)
        self._url = url
        self._requests = asyncio.Event()
        self._replies = asyncio.Event()
        self._delay_seconds = 0.0
        self._server: asyncio.Server | None = None
        self._port = 0
        self._connections: set[asyncio.Task[None]] = set()
        self.accepted = 0

    @property
    def url(self) -> str:
        return self.through(self._url)

    def through(self, url: str) -> str:
        """Another address on the same server (another role's), through this proxy."""
        return with_port(url, self._port)

    async def heal(self) -> None:
        """Everything passes, at once."""
        self._delay_seconds = 0.0
        self._requests.set()
        self._replies.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
            self._port = int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Nothing passes, both ways, and nobody is told."""
        self._requests.clear()
        self._replies.clear()

    def cut_replies(self) -> None:
        """Requests arrive and take effect; their answers do not come."""
        self._replies.clear()

    def delay(self, seconds: float) -> None:
        """Each chunk, each way, arrives that much later."""
        self._delay_seconds = seconds

    async def reset(self) -> None:
        """Every connection is closed; new ones pass."""
        for connection in tuple(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def close(self) -> None:
        """Every connection is closed and new ones are refused, until heal()."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.reset()

    async def __aenter__(self) -> Self:
        await self.heal()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        try:
            await self._requests.wait()
            answers, upstream = await asyncio.open_connection(*self._target)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, upstream, self._requests))
                both.create_task(self._pump(answers, writer, self._replies))
        except* OSError:
            pass  # either end hung up; so do we, on both
        finally:
            for end in (writer, upstream):
                if end is not None:
                    end.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        while data := await source.read(CHUNK):
            if self._delay_seconds:
                await asyncio.sleep(self._delay_seconds)
            await gate.wait()
            sink.write(data)
            await sink.drain()
        await gate.wait()
        with suppress(OSError):
            sink.write_eof()
