"""Replicas that are forked from a process with everything imported: importing it all takes each 0.6 s of CPU.

Each test process starts one fork server (replica_fork_server.py) when it first needs it.
"""

import asyncio
import atexit
import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from supervisor.tether import tethered

REQUEST_BYTES: Final = 1 << 17


class Fork:
    """A forked replica, seen from the test process."""

    def __init__(self, pid: int, line: socket.socket) -> None:
        self.pid = pid
        self._line = line
        self._returncode: int | None = None

    @property
    def returncode(self) -> int | None:
        if self._returncode is None:
            try:
                self._returncode = _number(self._line.recv(100))
            except BlockingIOError:
                return None
            self._line.close()
        return self._returncode

    async def wait(self) -> int:
        while (code := self.returncode) is None:
            await _readable(self._line)
        return code


@dataclass
class ForkServer:
    """The fork server of this process's replicas, seen from the test process."""

    process: "subprocess.Popen[bytes]"
    requests: socket.socket

    @classmethod
    def start(cls) -> "ForkServer":
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * REQUEST_BYTES)
        with theirs:
            command = tethered(
                [sys.executable, "-m", "tests.support.replica_fork_server", str(theirs.fileno())]
            )
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        return cls(process, ours)

    async def fork(self, variant: str, env: Mapping[str, str], directory: Path, log: BinaryIO) -> Fork:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps({"variant": variant, "env": dict(env), "directory": str(directory)})
        with theirs:
            socket.send_fds(self.requests, [request.encode()], [log.fileno(), theirs.fileno()])
        ours.setblocking(False)
        try:
            await _readable(ours)
            return Fork(_number(ours.recv(100)), ours)
        except BaseException:
            ours.close()
            raise

    def close(self) -> None:
        self.requests.close()
        self.process.wait()


_servers: list[ForkServer] = []


async def fork(variant: str, env: Mapping[str, str], directory: Path, log: BinaryIO) -> Fork:
    """Start a replica of this kind; its output goes to the log."""
    if not _servers:
        _servers.append(ForkServer.start())
        atexit.register(_servers[0].close)
    return await _servers[0].fork(variant, env, directory, log)


def _number(said: bytes) -> int:
    assert said, "the fork server has ended"
    return int(said)


async def _readable(line: socket.socket) -> None:
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(line, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(line)
