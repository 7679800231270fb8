"""Programs whose output is read as a stream, and which never outlive their reader.

    programs = Programs(scratch, deadline=tools.stop_deadline() + grace, kill_seconds=grace)
    tools.on_stop_deadline(lambda deadline: programs.rearm(deadline + grace))
    async with programs.run(["git", "rev-list", ...], env) as program:
        async for chunk in program:
            ...
        ended = await program.end()

Built on the launcher of commands (supervisor/isolate.py): no shell, an argument list, a dead man's timer, and
everything the program starts is dead when the block is left, however it is left. A chunk is read when the one
before it was taken: a slow reader slows the program down, and nothing piles up. Of standard error the last
bytes are kept, without the secrets named.

Standard input is empty, or the bytes of `feed`: they reach the program in an anonymous file that is opened
through this process, so a password is never in an argument list, an environment or a file system.

NOT guaranteed: that others of this user do not see a program's environment in /proc; they could read its
memory anyway.
"""

import os
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Self

import anyio
from anyio import BrokenResourceError, ClosedResourceError, EndOfStream
from anyio.lowlevel import checkpoint

from supervisor.errors import TenureError, only_expected
from supervisor.isolate import Command, CommandNotStarted, Ended
from supervisor.spawn import anonymous_file

__all__ = ["CommandNotStarted", "Ended", "Program", "Programs", "Stalled", "scrubbed", "unwrapped"]

STDERR_BYTES = 16_384
CHUNKS_AHEAD = 32
SMALL_CHUNK_BYTES = 16_384
GATHER_SECONDS = 0.002
"""Programs write 4 KiB at a time. Who takes each by itself has more turns than work; the pipe holds 64."""
MASK = "***"
USER_INFO = re.compile(r"(?<=://)[^/\s@'\"]*:[^/\s@'\"]*(?=@)")

# The launcher gives every program an empty standard input; this puts the file named first in its place.
# Python ignores two signals, and what is ignored stays so over an exec.
FEEDER = (
    "import os, signal, sys\n"
    "for number in (signal.SIGPIPE, signal.SIGXFSZ): signal.signal(number, signal.SIG_DFL)\n"
    "os.dup2(os.open(sys.argv[1], os.O_RDONLY), 0)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])\n"
)


class Stalled(TenureError):
    """{program} said nothing for {seconds:g} s"""

    hint = "the server does not answer; it is tried again later"


def scrubbed(text: str, secrets: Sequence[str] = ()) -> str:
    """Fit for messages, logs and rows: no secret, no `user:password@` and no control character in it."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, MASK)
    text = USER_INFO.sub(MASK, text)
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)


class Program:
    """One running program; iterate over it for its standard output."""

    def __init__(self, name: str, secrets: Sequence[str], idle_seconds: float) -> None:
        self.name = name
        self._secrets = tuple(secrets)
        self._idle_seconds = idle_seconds
        self._stderr = bytearray()
        self._abandoned = False
        self._dribbles = False
        self._ended: Ended | None = None
        self._over = anyio.Event()
        self._send, self._receive = anyio.create_memory_object_stream[bytes](CHUNKS_AHEAD)

    @property
    def stderr(self) -> str:
        """The last of what it complained about, scrubbed."""
        return scrubbed(self._stderr.decode("utf-8", "replace"), self._secrets)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        with anyio.move_on_after(self._idle_seconds):
            try:
                return await self._receive.receive()
            except EndOfStream:
                raise StopAsyncIteration from None
        raise Stalled(program=self.name, seconds=self._idle_seconds)

    async def end(self) -> Ended:
        """How it ended. What it still wrote is dropped."""
        async for _ in self:
            pass
        await self._over.wait()
        return self._ended or Ended(stopped="lost")

    async def read(self, limit: int) -> bytes:
        """All of its output, at most `limit` bytes of it."""
        kept = bytearray()
        async for chunk in self:
            kept += chunk[: limit - len(kept)]
        return bytes(kept)

    async def take(self, stream: str, data: bytes) -> None:
        if self._abandoned:
            await checkpoint()
        elif stream == "stdout":
            try:
                await self._send.send(data)
            except (BrokenResourceError, ClosedResourceError):
                self._abandoned = True
            await self._gather(len(data))
        else:
            self._stderr += data
            del self._stderr[:-STDERR_BYTES]
            await checkpoint()

    async def _gather(self, size: int) -> None:
        """Let some more come together, of a program that has said little twice in a row."""
        dribbled, self._dribbles = self._dribbles, size < SMALL_CHUNK_BYTES
        if dribbled and self._dribbles and not self._abandoned:
            await anyio.sleep(GATHER_SECONDS)

    async def pump(self, command: Command) -> None:
        try:
            self._ended = await command.wait()
        finally:
            self._send.close()
            self._over.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Nobody reads any more: the rest of the output is dropped instead of waiting for a reader."""
        self._abandoned = True
        self._receive.close()
        self._send.close()


class Programs:
    """The programs of one claim: they share its deadline, which moves for all of them."""

    def __init__(
        self, scratch: Path, *, deadline: float, kill_seconds: float, idle_seconds: float = 300.0
    ) -> None:
        self.scratch = scratch
        self.kill_seconds = kill_seconds
        self.idle_seconds = idle_seconds
        self._deadline = deadline
        self._running: dict[Program, Command] = {}

    def rearm(self, deadline: float) -> None:
        """Move the deadline of all; from any thread."""
        self._deadline = deadline
        for command in tuple(self._running.values()):
            command.rearm(deadline)

    @asynccontextmanager
    async def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        feed: bytes | None = None,
        secrets: Sequence[str] = (),
        idle_seconds: float | None = None,
    ) -> AsyncIterator[Program]:
        program = Program(argv[0], secrets, self.idle_seconds if idle_seconds is None else idle_seconds)
        with _fed(argv, feed) as fed, unwrapped(), program:
            async with Command.start(
                fed,
                env=env,
                cwd=str(self.scratch),
                deadline=self._deadline,
                kill_seconds=self.kill_seconds,
                on_output=program.take,
            ) as command:
                self._running[program] = command
                command.rearm(self._deadline)  # it may have moved while the program was starting
                try:
                    async with anyio.create_task_group() as group:
                        group.start_soon(program.pump, command)
                        try:
                            yield program
                        finally:
                            program.abandon()
                            group.cancel_scope.cancel()
                finally:
                    del self._running[program]


@contextmanager
def _fed(argv: Sequence[str], feed: bytes | None) -> Iterator[Sequence[str]]:
    if feed is None:
        yield argv
        return
    handle = anonymous_file(feed)
    try:
        source = f"/proc/{os.getpid()}/fd/{handle}"
        yield [sys.executable, "-I", "-S", "-c", FEEDER, source, *argv]
    finally:
        os.close(handle)


@contextmanager
def unwrapped() -> Iterator[None]:
    """A task group wraps what its body raised; the caller wants it as it was, and of several troubles one."""
    try:
        yield
    except BaseExceptionGroup as group:
        told = group.exceptions[0] if len(group.exceptions) == 1 else only_expected(group)
        raise told from told.__cause__
