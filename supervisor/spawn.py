"""A replica's end of its warden: starts it when first needed, hands it descriptors, replaces it when it died.

A warden that died takes no command with it: the launchers go on, each with its own line to the replica. What
is lost is the burial of what a launcher leaves that is killed too.
"""

import atexit
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from anyio import to_thread

from supervisor.errors import TenureError

# The package's own __init__ would load much that a warden never needs: an empty package stands in for it.
WARDEN_CODE = """
import sys, types
package = types.ModuleType("supervisor")
package.__path__ = [sys.argv.pop()]
sys.modules["supervisor"] = package
from supervisor.warden import main
main()
"""


class CommandNotStarted(TenureError):
    """the command could not be started: {what}"""

    hint = "check that program and working directory exist on every replica, and may be used"


class WardenClient:
    """This process's warden, started when first needed and again when it has died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    async def launch(self, handles: Sequence[int]) -> None:
        requests = self._requests
        if requests is None:
            requests = await to_thread.run_sync(self._restart, None)
        try:
            await _send_handles(requests, handles)
        except (BrokenPipeError, ConnectionResetError):
            requests = await to_thread.run_sync(self._restart, requests)
            await _send_handles(requests, handles)

    def give_up(self) -> None:
        """It does not answer: the next command gets a new one. The old one exits when its work is over."""
        if self._requests:
            self._requests.close()
            self._requests = None

    def _restart(self, broken: socket.socket | None) -> socket.socket:
        with self._lock:
            if self._requests and self._requests is not broken:
                return self._requests
            self.give_up()
            if self._process:
                self._process.poll()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                arguments = [str(theirs.fileno()), str(Path(__file__).parent)]
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-X", "utf8", "-c", WARDEN_CODE, *arguments],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"},
                    start_new_session=True,  # a Ctrl-C at the terminal is for the replica to judge
                )
            ours.setblocking(False)
            self._requests = ours
            return ours

    def close(self) -> None:
        self.give_up()
        if self._process:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)


async def _send_handles(requests: socket.socket, handles: Sequence[int]) -> None:
    while True:
        try:
            # the count, since descriptors that find no room at the other end are lost without a word
            socket.send_fds(requests, [b"launch%d" % len(handles)], list(handles))
        except BlockingIOError:
            await anyio.wait_writable(requests)
        else:
            return


WARDEN = WardenClient()
atexit.register(WARDEN.close)


def anonymous_file(content: bytes) -> int:
    file = os.memfd_create("command", os.MFD_CLOEXEC)
    try:
        with open(file, "wb", closefd=False) as writer:
            writer.write(content)
    except OSError:
        os.close(file)
        raise
    return file
