"""A served application and clients that speak to it byte by byte."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
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


class Client:
    """A bare socket: what came before a reset is read, and when the server has closed is seen."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = b""

    async def say(self, *parts: bytes) -> None:
        """Send; a server that has closed is no error."""
        with suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(self._sock, b"".join(parts))

    async def answer(self) -> Answer:
        """The next answer, whole; it has a Content-Length."""
        status, *lines = (await self.until(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = int(headers.get("content-length", 0))
        while len(self._buffer) < length:
            assert await self._read(), "the answer ended early"
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Answer(int(status.split()[1]), headers, body)

    async def until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            assert await self._read(), f"closed after {self._buffer!r}"
        found, _, self._buffer = self._buffer.partition(end)
        return found + end

    async def rest(self) -> bytes:
        """All that still comes until the server closes; TimeoutError if it does not."""
        while await self._read():
            pass
        return self._buffer

    @property
    def has_ended(self) -> bool:
        try:
            return self._sock.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def close(self) -> None:
        self._sock.close()

    async def _read(self) -> bool:
        async with asyncio.timeout(patient(20)):
            try:
                data = await asyncio.get_running_loop().sock_recv(self._sock, 65536)
            except ConnectionError:
                data = b""
        self._buffer += data
        return data != b""


class Server:
    """A port that clients connect to; at the end they are closed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._clients: list[Client] = []

    async def connect(self, source: str = "127.0.0.1") -> Client:
        sock = socket.socket()
        sock.setblocking(False)
        client = Client(sock)
        self._clients.append(client)
        sock.bind((source, 0))
        async with asyncio.timeout(patient(10)):
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        return client

    async def ask(self, path: str, *headers: str, method: str = "GET", source: str = "127.0.0.1") -> Answer:
        """Ask on a connection of its own."""
        client = await self.connect(source)
        try:
            await client.say(head(path, *headers, method=method))
            return await client.answer()
        finally:
            self.leave(client)

    def leave(self, client: Client) -> None:
        client.close()
        self._clients.remove(client)

    def close(self) -> None:
        for client in self._clients:
            client.close()


@asynccontextmanager
async def served(
    app: Any, bounds: Bounds | None = None, proxies: TrustedProxies | None = None
) -> AsyncIterator[Server]:
    """Serve on a free port of loopback."""
    ready, servers = anyio.Event(), []

    def note(port: int) -> None:
        servers.append(Server(port))
        ready.set()

    async def run() -> None:
        await serve(app, "127.0.0.1", 0, note, bounds=bounds, proxies=proxies)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(patient(10)):
            await ready.wait()
        try:
            yield servers[0]
        finally:
            servers[0].close()
            tasks.cancel_scope.cancel()


def head(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]
    return "\r\n".join(lines).encode()
