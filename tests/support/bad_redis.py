"""Servers that behave as no Redis should. `python -m tests.support.bad_redis PORT` has several habits."""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from typing import Final

# What a client says before it asks for anything.
GREETING: Final = (b"CLIENT", b"SELECT", b"AUTH")
# So far, that only what concerns leases is left to be answered badly.
LEASES_ONLY: Final = (*GREETING, b"SUBSCRIBE", b"PUBLISH", b"PING")

Habit = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes everything, answers nothing."""
    while await reader.read(65536):
        pass


async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Hangs up in the middle of an answer."""
    writer.write(b"$100\r\nabc")
    await writer.drain()


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers bytes that are no answer."""
    while True:
        writer.write(os.urandom(512) + b"\r\n" + b"\x80\x04K\x01.\r\n")
        await writer.drain()
        await reader.read(65536)


async def nested(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Opens lists in lists in lists."""
    writer.write(b"*1\r\n" * 100_000)
    await silent(reader, writer)


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Announces an answer of a gigabyte, and sends it."""
    writer.write(b"$1000000000\r\n")
    while True:
        writer.write(b"x" * 1_000_000)
        await writer.drain()


def answering(answer: Callable[[Sequence[bytes]], bytes], delay: float = 0) -> Habit:
    async def habit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while command := await _command(reader):
            await asyncio.sleep(delay)
            writer.write(answer(command))
            await writer.drain()

    return habit


def polite(command: Sequence[bytes]) -> bytes:
    """What a Redis says that grants everything."""
    match command[0].upper():
        case b"SUBSCRIBE":
            return b"*3\r\n$9\r\nsubscribe\r\n$%d\r\n%b\r\n:1\r\n" % (len(command[1]), command[1])
        case b"PUBLISH":
            return b":0\r\n"
        case b"EVAL":
            return b"$-1\r\n"
        case b"PING":
            return b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"
        case _:
            return b"+OK\r\n"


def taken(command: Sequence[bytes]) -> bytes:
    """Everything is taken, always."""
    return b"$-1\r\n" if command[0].upper() == b"SET" and len(command) > 4 else polite(command)


_wrong = cycle(
    [b":5\r\n", b"$3\r\nfoo\r\n", b"*2\r\n:1\r\n$-1\r\n", b"+QUEUED\r\n", b"*0\r\n", b"-OOM no\r\n"]
)


def wrong(_command: Sequence[bytes]) -> bytes:
    """Well-formed answers of types that nobody asked for."""
    return next(_wrong)


def shouting(command: Sequence[bytes]) -> bytes:
    """Wakes everybody, without end and with words nobody knows."""
    texts = [
        b"run",
        b"assigned",
        b"leader",
        b"event",
        b"lease:x",
        b"\xff\x00",
        b"x" * 3000,
        b"stop:everything",
    ]
    noise = b"".join(
        b"*3\r\n$7\r\nmessage\r\n$6\r\ntenure\r\n$%d\r\n%b\r\n" % (len(one), one) for one in texts
    )
    return polite(command) + (noise * 20_000 if command[0].upper() == b"SUBSCRIBE" else b"")


HABITS: Final[dict[str, Habit]] = {
    "silent": silent,
    "closing": closing,
    "garbage": garbage,
    "nested": nested,
    "endless": endless,
    "polite": answering(polite),
    "slow": answering(polite, 0.03),
    "too-slow": answering(polite, 1),
    "taken": answering(taken),
    "wrong": answering(wrong),
    "shouting": answering(shouting),
}
# Those that take no processor time from the tests beside them.
QUIET: Final = ("silent", "closing", "garbage", "slow", "too-slow", "taken", "wrong")


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    """The next command of a client; empty at the end."""
    head = await reader.readline()
    words = []
    for _ in range(int(head[1:]) if head else 0):
        length = int((await reader.readline())[1:])
        words.append((await reader.readexactly(length + 2))[:-2])
    return words


@dataclass
class StandIn:
    url: str = ""
    accepted: int = 0


@asynccontextmanager
async def stand_in(
    *habits: str,
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    polite_to: Sequence[bytes] = GREETING,
) -> AsyncIterator[StandIn]:
    """A server that answers well as long as it hears these commands only, and then falls into a habit: into
    another of them on each new connection."""
    turn = cycle(habits)
    running: set[asyncio.Task[None]] = set()
    self = StandIn()

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, EOFError, ValueError):
                await _greet(reader, writer, polite_to)
                await HABITS[next(turn)](reader, writer)
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.ensure_future(behave(reader, writer))
        running.add(task)
        task.add_done_callback(running.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", port, ssl=tls)
    self.url = f"redis{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    try:
        yield self
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _greet(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, polite_to: Sequence[bytes]
) -> None:
    """Until a command comes that is for the habit; that one is put back."""
    while (command := await _command(reader)) and command[0].upper() in polite_to:
        writer.write(polite(command))
        await writer.drain()
    words = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in command)
    rest = bytes(reader._buffer)  # type: ignore[attr-defined]  # asyncio has no way to put something back
    reader._buffer.clear()  # type: ignore[attr-defined]  # as above
    if command:
        reader.feed_data(b"*%d\r\n" % len(command) + words + rest)


async def _serve(port: int) -> None:
    async with stand_in(*QUIET, port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
