"""A served application and clients that speak to it byte by byte."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio

from supervisor.api import serve
from supervisor.api.connections import Bounds
from supervisor.proxies import TrustedProxies
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


@asynccontextmanager
async def served(
    app: Any, bounds: Bounds | None = None, proxies: TrustedProxies | None = None
) -> AsyncIterator[int]:
    """Serve on a free port of loopback."""
    ready, ports = anyio.Event(), []

    def note(port: int) -> None:
        ports.append(port)
        ready.set()

    async def run() -> None:
        await serve(app, "127.0.0.1", 0, note, bounds=bounds, proxies=proxies)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(patient(10)):
            await ready.wait()
        yield ports[0]
        tasks.cancel_scope.cancel()


async def connect(port: int, source: str = "127.0.0.1") -> Client:
    async with asyncio.timeout(patient(10)):
        return Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)))


async def ask(port: int, path: str, *headers: str, method: str = "GET", source: str = "127.0.0.1") -> Answer:
    """Ask on a connection of its own."""
    client = await connect(port, source)
    try:
        await client.say(head(path, *headers, method=method))
        return await client.answer()
    finally:
        await client.close()


def head(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]
    return "\r\n".join(lines).encode()
