"""One chamber as the replica sees it: a child, the line to it, and its end.

`open_chamber` is a blocking call for a thread that lives as long as the children it starts: the kernel ends
them with the *thread* that started them (PR_SET_PDEATHSIG), not with the process.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from anyio import CancelScope

from supervisor.chamber_child import MAX_HANDLES, MAX_MESSAGE_BYTES
from supervisor.chamber_failure import ChamberKilled, ChamberNotStarted
from supervisor.errors import BadInput

BURIAL_SECONDS = 5.0

# The package's own __init__ would load much that a child never needs: an empty package stands in for it.
CHILD_CODE = """
import sys, types
package = types.ModuleType("supervisor")
package.__path__ = [sys.argv.pop()]
sys.modules["supervisor"] = package
from supervisor.chamber_child import main
main()
"""


class Chamber:
    """One child. Used by one request at a time."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, pidfd: int) -> None:
        self.pid = process.pid
        self.requests = 0
        self.resident_bytes = 0
        self._process = process
        self._control = control
        self._pidfd = pidfd

    async def become_ready(self, task: str) -> dict[str, Any]:
        """The guards in force, when the task is loaded."""
        answer = await self._receive()
        if answer is None:
            raise ChamberNotStarted(task=task, what=f"it died: {(await self._cause()).facts['what']}")
        guards = answer.get("ready")
        if not isinstance(guards, dict):
            raise ChamberNotStarted(task=task, what=answer.get("refused", "it answered nonsense"))
        return guards

    @property
    def lives(self) -> bool:
        """An idle child says nothing: a message or the end of the line means that it is not to be used."""
        try:
            self._control.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    async def ask(
        self, request: Mapping[str, Any], handles: Sequence[int], deadline: float
    ) -> dict[str, Any]:
        """Its answer. Whatever else comes out of here, the child is not to be used again."""
        self.requests += 1
        order = encode({"id": self.requests, "deadline": deadline, "request": request})
        if len(handles) > MAX_HANDLES:
            raise BadInput(what=f"at most {MAX_HANDLES} descriptors go with a request")
        await self._send(order, handles)
        answer = await self._receive()
        if answer is None:
            raise await self._cause()
        if "exhausted" in answer:
            raise ChamberKilled(what="it needed more memory than it may have")
        resident = answer.get("resident_bytes")
        if answer.get("id") != self.requests or not isinstance(resident, int):
            raise ChamberKilled(what="it answered nonsense")
        self.resident_bytes = resident
        return answer

    async def bury(self) -> bool:
        """Kill it and take its exit status; False if the kernel has not let go of it yet: ask again later."""
        self.kill()
        with CancelScope(shield=True), anyio.move_on_after(BURIAL_SECONDS):
            await self._wait()
        return self.buried

    def kill(self) -> None:
        self._process.kill()
        self._control.close()

    @property
    def buried(self) -> bool:
        if self._process.poll() is None:
            return False
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        return True

    async def _cause(self) -> ChamberKilled:
        """It hung up: why. One that hung up and lives on is killed."""
        with anyio.move_on_after(1.0):
            await self._wait()
        status = self._process.poll()
        if status is None:
            return ChamberKilled(what="it hung up")
        if status < 0:
            return ChamberKilled(signal=-status)
        return ChamberKilled(what=f"it ended by itself with status {status}")

    async def _wait(self) -> None:
        if self._pidfd >= 0 and self._process.poll() is None:
            await anyio.wait_readable(self._pidfd)

    async def _send(self, message: bytes, handles: Sequence[int]) -> None:
        while True:
            try:
                socket.send_fds(self._control, [message], list(handles))
            except BlockingIOError:
                await anyio.wait_writable(self._control)
            except (BrokenPipeError, ConnectionResetError):
                return  # the answer will be the end of the line
            else:
                return

    async def _receive(self) -> dict[str, Any] | None:
        while True:
            try:
                # No room for descriptors: what a child might send along is closed by the kernel.
                message = self._control.recv(MAX_MESSAGE_BYTES + 1)
            except BlockingIOError:
                await anyio.wait_readable(self._control)
            except ConnectionResetError:
                continue  # it left our request unread; the kernel says so once, ahead of the end
            else:
                return _decode(message) if message else None


def encode(order: Mapping[str, Any]) -> bytes:
    message = json.dumps(order).encode()
    if len(message) > MAX_MESSAGE_BYTES:
        raise BadInput(what="the request for a child process is too long; give it as a file")
    return message


def _decode(message: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        answer = json.loads(message)
        if isinstance(answer, dict):
            return answer
    raise ChamberKilled(what="it answered nonsense")


def open_chamber(spec: Mapping[str, Any], environment: Mapping[str, str]) -> Chamber:
    """Start a child; blocks for some milliseconds. Its first message tells whether it can work."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with theirs:
            arguments = [str(theirs.fileno()), json.dumps(spec), str(Path(__file__).parent)]
            process = subprocess.Popen(
                [sys.executable, "-I", "-X", "utf8", "-c", CHILD_CODE, *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=dict(environment),
                start_new_session=True,  # a Ctrl-C at the terminal is for the replica to judge
            )
        try:
            ours.setblocking(False)
            return Chamber(process, ours, os.pidfd_open(process.pid))
        except OSError:
            process.send_signal(signal.SIGKILL)
            process.wait()
            raise
    except OSError:
        ours.close()
        raise
