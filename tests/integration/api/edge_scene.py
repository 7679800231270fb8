"""A served application and clients that speak to it byte by byte."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio

from supervisor.api import serve
from supervisor.api.connections import Bounds
from tests.support.slowness import patient


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, *parts: bytes) -> None:
        """Send; a server that has closed is no error."""
        with suppress(ConnectionError):
            self.writer.write(b"".join(parts))
            await self.writer.drain()

    async def answer(self) -> Answer:
        """The next answer, whole; it has a Content-Length."""
        async with asyncio.timeout(patient(20)):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(status.split()[1]), headers, body)

    async def rest(self) -> bytes:
        """All that still comes until the server closes; TimeoutError if it does not."""
        async with asyncio.timeout(patient(20)):
            with suppress(ConnectionError):
                return await self.reader.read()
        return b""

    @property
    def has_ended(self) -> bool:
        return self.reader.at_eof() or self.reader.exception() is not None

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class Server:
    """A port that clients connect to; at the end they are closed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._clients: list[Client] = []

    async def connect(self, source: str = "127.0.0.1") -> Client:
        async with asyncio.timeout(patient(10)):
            streams = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))
        self._clients.append(Client(*streams))
        return self._clients[-1]

    async def ask(self, path: str, *headers: str, method: str = "GET", source: str = "127.0.0.1") -> Answer:
        """Ask on a connection of its own."""
        client = await self.connect(source)
        try:
            await client.say(head(path, *headers, method=method))
            return await client.answer()
        finally:
            await client.close()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def served(app: Any, bounds: Bounds | None = None) -> AsyncIterator[Server]:
    """Serve on a free port of loopback."""
    ready, servers = anyio.Event(), []

    def note(port: int) -> None:
        servers.append(Server(port))
        ready.set()

    async def run() -> None:
        await serve(app, "127.0.0.1", 0, note, bounds=bounds)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(patient(10)):
            await ready.wait()
        try:
            yield servers[0]
        finally:
            await servers[0].close()
            tasks.cancel_scope.cancel()


def head(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]
    return "\r\n".join(lines).encode()
