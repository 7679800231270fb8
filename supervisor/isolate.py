"""Commands in processes of their own, for the event loop of a replica.

    async with Command.start(argv, env=env, cwd=None, deadline=d, kill_seconds=k, on_output=log) as command:
        ended = await command.wait()

Everything the command starts is dead when the block is left, however it is left: it ended, it was cancelled
(SIGTERM, `kill_seconds`, SIGKILL), its deadline passed without `rearm`, or this process died (the launcher
sees the end of file). Output is handed on chunk by chunk; the next chunk is read when the callback has
returned, so a slow reader slows the command and nothing piles up here. See launcher.py for the process below
and warden.py for its parent.

NOT guaranteed: descendants that changed their user where we may not signal them (`Ended.survivors`).
"""

import errno
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

import anyio
from anyio import CancelScope, to_thread
from anyio.lowlevel import checkpoint

from supervisor.confinement import UNCONFINED, Confinement
from supervisor.descendants import Process, send
from supervisor.descriptors import raise_limit
from supervisor.spawn import WARDEN, CommandNotStarted, anonymous_file

__all__ = ["Command", "CommandNotStarted", "Ended", "OnOutput"]

CHUNK_BYTES = 65536
START_SECONDS = 10.0

OnOutput = Callable[[str, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. `stopped`: none | terminated | expired | eof | lost (its launcher was killed)."""

    exit_code: int | None = None
    signal: int | None = None
    stopped: str = "none"
    survivors: int = 0


LOST = Ended(stopped="lost")


class Command:
    """One running command. Made by `Command.start`."""

    def __init__(self, kill_seconds: float, on_output: OnOutput) -> None:
        self.pid: int | None = None
        self.ended: Ended | None = None
        self._kill_seconds = kill_seconds
        self._on_output = on_output
        self._launcher: Process | None = None
        self._control: socket.socket | None = None
        self._pipes: dict[str, int] = {}
        self._waits: dict[str, CancelScope] = {}
        self._reading = anyio.Lock()
        self._terminating = False
        self._refusal = ""

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        deadline: float,
        kill_seconds: float,
        on_output: OnOutput,
        confinement: Confinement = UNCONFINED,
    ) -> AsyncIterator[Self]:
        """Run `argv`; at `deadline` (boottime) everything of it is killed, unless `rearm` moves it."""
        command = cls(kill_seconds, on_output)
        what = {"argv": list(argv), "env": dict(env), "cwd": cwd}
        bounds = {"deadline": deadline, "kill_seconds": kill_seconds, "open_files": raise_limit()}
        try:
            spec = json.dumps({**what, **bounds, **confinement.as_spec()}).encode()
            await command._launch(spec, confinement)
            yield command
        finally:
            try:
                if command._control and command.ended is None:
                    await command.terminate()
            finally:
                command._close()

    async def wait(self) -> Ended:
        """Hand on the output until the command and everything it started has ended."""
        return await self._finish(self._on_output)

    def rearm(self, deadline: float) -> None:
        """Move the deadline. A launcher that does not listen is not waited for: its deadline stays."""
        if self.ended is None and not self._terminating:
            self._order({"deadline": deadline})

    async def terminate(self) -> Ended:
        """SIGTERM to everything, `kill_seconds`, SIGKILL to everything; returns when all is dead."""
        self._terminating = True
        with CancelScope(shield=True):
            self._order({"terminate": True})
            self._signal_launcher(signal.SIGCONT)
            with anyio.move_on_after(self._kill_seconds * 1.25):
                await self._last_words()
            if self.ended is None:  # the callback hangs, or the launcher does
                with anyio.move_on_after(self._kill_seconds * 0.25):
                    await self._finish(_discard)
            if self.ended is None:
                self._signal_launcher(signal.SIGKILL)
                await self._finish_or_hang_up()
        return self.ended or LOST

    async def _last_words(self) -> None:
        with suppress(Exception):  # the end of the command matters more than what it still had to say
            await self._finish(self._on_output)

    async def _finish_or_hang_up(self) -> None:
        """A launcher never heard of cannot be signalled; hung up on, it ends what it started, if anything."""
        if self._launcher:
            await self._finish(_discard)
        else:
            self.ended = LOST

    def _signal_launcher(self, signum: int) -> None:
        if self._launcher:
            send(self._launcher, signum)

    async def _launch(self, spec: bytes, confinement: Confinement) -> None:
        theirs: list[int] = []
        try:
            ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            theirs.append(other.detach())
            ours.setblocking(False)
            self._control = ours
            theirs.append(anonymous_file(spec))
            for stream in ("stdout", "stderr"):
                self._pipes[stream], write = os.pipe()
                theirs.append(write)
                os.set_blocking(self._pipes[stream], False)
            if confinement.closed is not None:
                theirs.append(await to_thread.run_sync(confinement.closed.ruleset))
            await WARDEN.launch(theirs)
        except OSError as error:
            self.ended = LOST
            raise CommandNotStarted(what=error.strerror or str(error)) from error
        finally:
            for handle in theirs:
                os.close(handle)
        await self._hear_start()

    async def _hear_start(self) -> None:
        with anyio.move_on_after(START_SECONDS) as patience:
            message = await self._receive()
            if message is None:
                self.ended = LOST
                raise CommandNotStarted(what="its launcher died")
            self._take(message)
            if self._refusal:
                raise CommandNotStarted(what=self._refusal)
        if patience.cancelled_caught:
            WARDEN.give_up()
            self.ended = LOST
            raise CommandNotStarted(what=f"no answer from the launcher in {START_SECONDS:g} s")

    def _take(self, message: dict[str, Any]) -> None:
        if "refused" in message:
            what, code = message["refused"]
            where = "" if what == "exec" else f"{what}: "
            self._refusal = f"{where}{os.strerror(code)} ({errno.errorcode.get(code, code)})"
            self.ended = Ended()
        elif "started" in message:
            self.pid, launcher, started = message["started"]
            self._launcher = Process(launcher, os.getpid(), started)
        else:
            self.ended = Ended(**message["ended"])

    async def _finish(self, deliver: OnOutput) -> Ended:
        async with self._reading:
            if self.ended and not self._pipes:
                return self.ended
            try:
                async with anyio.create_task_group() as group:
                    for stream, pipe in self._pipes.items():
                        group.start_soon(self._pump, stream, pipe, deliver)
                    await self._hear_end()
            except ExceptionGroup as failures:
                if len(failures.exceptions) == 1:
                    raise failures.exceptions[0] from None
                raise
        return self.ended or LOST

    async def _hear_end(self) -> None:
        while self.ended is None:
            message = await self._receive()
            if message is None:
                self.ended = LOST
            else:
                self._take(message)
        # All writers are dead: what is in the pipes is all there will be, even if a stranger holds one open.
        for scope in self._waits.values():
            scope.cancel()

    async def _pump(self, stream: str, pipe: int, deliver: OnOutput) -> None:
        while True:
            try:
                data = os.read(pipe, CHUNK_BYTES)
            except BlockingIOError:
                if self.ended:
                    return
                with CancelScope() as self._waits[stream]:
                    await anyio.wait_readable(pipe)
                continue
            if not data:
                return
            await deliver(stream, data)

    async def _receive(self) -> dict[str, Any] | None:
        while self._control:
            try:
                message = self._control.recv(4096)
            except BlockingIOError:
                await anyio.wait_readable(self._control)
            except ConnectionResetError:
                # The launcher left our last order unread. The kernel says so once, ahead of its report.
                continue
            else:
                return json.loads(message) if message else None
        return None

    def _order(self, order: dict[str, Any]) -> None:
        # deadlines come from the thread of beats, and meanwhile the command may end and its socket be closed
        if control := self._control:
            with suppress(OSError):
                control.send(json.dumps(order).encode())

    def _close(self) -> None:
        if self._control:
            self._control.close()
            self._control = None
        while self._pipes:
            os.close(self._pipes.popitem()[1])


async def _discard(_stream: str, _data: bytes) -> None:
    await checkpoint()
