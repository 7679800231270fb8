"""The umask of our processes: what they make is closed to other users.

A command, or what else is made for others, gets the umask that `tenure up` was started with.
"""

import os
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o077

_started_with: int | None = None


def restrict() -> int:
    """Close new files to other users from now on; return the umask that this process was started with."""
    global _started_with  # noqa: PLW0603  a process has one umask
    before = os.umask(PRIVATE)
    if _started_with is None:
        _started_with = before
    return _started_with


def started_with() -> int:
    """Return the umask of the operator, for what this process starts or makes for others."""
    return _current() if _started_with is None else _started_with


def _current() -> int:
    # os.umask() cannot ask without changing it, also for the other threads
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1], 8) for line in status.splitlines() if line.startswith("Umask:"))
