"""A TCP relay that holds back, delays or slows what passes, in the observer's event loop.

What is held back is delivered after the heal, as TCP would retransmit it. While a direction is cut, new
connections are accepted and stay silent, as with a firewall that drops.
"""

import asyncio
import random
from contextlib import suppress

CHUNK = 65536


class Relay:
    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.address = ("", 0)
        self.delay_seconds = 0.0
        self.jitter_seconds = 0.0
        self.bytes_per_second = 0.0
        self._requests = asyncio.Event()
        self._replies = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._random = random.Random(0)  # noqa: S311  not a secret
        self.heal()

    async def open(self, host: str) -> tuple[str, int]:
        self._server = await asyncio.start_server(self._accept, host, 0)
        self.address = self._server.sockets[0].getsockname()[:2]
        return self.address

    def cut(self, *, requests: bool = True, replies: bool = True) -> None:
        if requests:
            self._requests.clear()
        if replies:
            self._replies.clear()

    def heal(self) -> None:
        self.delay_seconds = self.jitter_seconds = self.bytes_per_second = 0.0
        self.open_gates()

    def open_gates(self) -> None:
        self._requests.set()
        self._replies.set()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        try:
            await self._requests.wait()
            answers, upstream = await asyncio.open_connection(*self.target)
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
            await self._hold(len(data))
            await gate.wait()
            sink.write(data)
            await sink.drain()
        await gate.wait()
        with suppress(OSError):
            sink.write_eof()

    async def _hold(self, size: int) -> None:
        late = self.delay_seconds + self._random.uniform(-1, 1) * self.jitter_seconds
        if self.bytes_per_second:
            late += size / self.bytes_per_second
        if late > 0:
            await asyncio.sleep(late)
