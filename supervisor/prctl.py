"""What a process asks of the kernel about itself. Standard library only: children without packages use it."""

import ctypes
import os
import platform
import signal
from typing import Final

PDEATHSIG: Final = 1
DUMPABLE: Final = 4
CHILD_SUBREAPER: Final = 36
NO_NEW_PRIVS: Final = 38
KEYCTL: Final = {"x86_64": 250, "aarch64": 219}
KEYCTL_JOIN_SESSION_KEYRING: Final = 1


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies."""
    _prctl(CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent dies.

    Children do not inherit this. An exec keeps it, and a change of the user clears it.
    """
    _prctl(PDEATHSIG, signal.SIGKILL)


def close_memory(*, closed: bool = True) -> None:
    """Close memory, environment and descriptors of this process to others of its user, root excepted.

    Forked children inherit this; an exec opens the process again, so each program closes itself.
    """
    _prctl(DUMPABLE, 0 if closed else 1)


def refuse_new_privileges() -> None:
    """Let no program that is executed from now on gain rights: set-user-ID bits have no effect."""
    _prctl(NO_NEW_PRIVS, 1)


def leave_session_keyring() -> None:
    """Take a session keyring of one's own: the keys of whoever logged in are not for the next user.

    Where the kernel has no keys, or a sandbox forbids the call, there are none to leave.
    """
    if (number := KEYCTL.get(platform.machine())) is not None:
        _LIBRARY.syscall(number, KEYCTL_JOIN_SESSION_KEYRING, None)


_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _LIBRARY.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")
