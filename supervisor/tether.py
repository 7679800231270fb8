"""Run a command that cannot outlive its parent: `python tether.py PARENT_PID COMMAND...`.

The kernel sends SIGKILL when the parent ends, however it ends. It watches the parent's *thread* that started
the child, so start tethered children from a thread that lives as long as the process. A file of its own, run
by its path: it becomes the command (exec) before anything heavy is imported.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def tethered(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` tied to this process."""
    return [sys.executable, "-I", __file__, str(os.getpid()), *command]


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it ended before the kernel was told to watch it
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606  no shell is wanted


if __name__ == "__main__":
    main()
