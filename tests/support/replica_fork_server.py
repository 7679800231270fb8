"""Fork replicas on demand: `python -m tests.support.replica_fork_server FD`, started by replica_forks.py.

It has one thread and no event loop, and imports what a replica imports. A child gets an environment, a
directory and a log of its own, goes on as `python -m supervisor.cli up` would after its imports, and ends as
any interpreter does. It dies with this process, and this process with the test process.
"""

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from supervisor.config import load_settings
from supervisor.tether import PR_SET_PDEATHSIG
from supervisor.wiring import run_replica
from tests.support.replica_forks import REQUEST_BYTES
from tests.support.variants import VARIANTS


class Child(NamedTuple):
    pid: int
    line: socket.socket

    def send(self, number: int) -> None:
        with suppress(BrokenPipeError):  # the test that asked for it is over
            self.line.send(b"%d" % number)


@dataclass
class ForkServer:
    requests: socket.socket
    children: dict[int, Child] = field(default_factory=dict)

    def serve(self) -> str | None:
        """Return None when nobody sends requests any more; in a child, the variant that it is."""
        while True:
            ready, _, _ = select.select([self.requests.fileno(), *self.children], [], [])
            for process in self.children.keys() & ready:
                self._reap(process)
            if self.requests.fileno() in ready:
                request, files, _, _ = socket.recv_fds(self.requests, REQUEST_BYTES, maxfds=2)
                if not request:
                    return None
                if self._fork(files):
                    return _become(files[0], **json.loads(request))

    def _fork(self, files: list[int]) -> bool:
        """Return whether this is the child."""
        parent, (log, line) = os.getpid(), files
        pid = os.fork()
        if pid == 0:
            _die_with(parent)
            self.requests.close()
            os.close(line)
            for process, sibling in self.children.items():
                os.close(process)
                sibling.line.close()
            return True
        os.close(log)
        child = Child(pid, socket.socket(fileno=line))
        self.children[os.pidfd_open(pid)] = child
        child.send(pid)
        return False

    def _reap(self, process: int) -> None:
        child = self.children.pop(process)
        os.close(process)
        _, status = os.waitpid(child.pid, 0)
        child.send(os.waitstatus_to_exitcode(status))
        child.line.close()


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel was told to watch it
        os._exit(1)


def _become(log: int, *, variant: str, env: Mapping[str, str], directory: str) -> str:
    for output in (1, 2):
        os.dup2(log, output)
    os.close(log)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(directory)
    return variant


def main() -> None:
    # A child that collects garbage shall not copy what it has from here.
    gc.freeze()
    variant = ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()
    if variant is not None:
        sys.exit(run_replica(load_settings(), VARIANTS[variant]))


if __name__ == "__main__":
    main()
