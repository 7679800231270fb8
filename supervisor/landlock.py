"""Landlock: what this thread and all that it starts may do with files, other processes and the network.

A ruleset is a descriptor. It lists what may be used, everything else is closed, and no rule takes away what
another one gives. Descriptors that were opened elsewhere and handed over stay usable. The layouts and numbers
are the same on x86_64 and aarch64. Standard library only: children without packages use it.
"""

import ctypes
import os
from collections.abc import Iterable
from typing import Any, ClassVar, Final

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_FLAG = 1
PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = (1 << bit for bit in (0, 1, 2, 3, 14, 15))
OF_A_FILE: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""The rights that a rule may give for what is not a directory."""
# Rights of the file system by ABI: 13 at first, then REFER, TRUNCATE, and with 5 IOCTL_DEV.
FS_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
NET_TCP, SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 0b11, 0b01, 0b10
SIGNALS_ABI: Final = 6
"""The first one that keeps signals inside."""


class _Ruleset(ctypes.Structure):
    _fields_: ClassVar[list[tuple[str, Any]]] = [
        ("fs", ctypes.c_uint64),
        ("net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    ]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_: ClassVar[list[tuple[str, Any]]] = [("access", ctypes.c_uint64), ("directory", ctypes.c_int32)]


_LIBRARY = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """Return the kernel's version of Landlock; 0 where it has none, or a sandbox forbids asking."""
    return max(0, int(_LIBRARY.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION_FLAG)))


def restrict(readable: Iterable[str]) -> int:
    """Give up everything but reading below `readable`; the ABI in force, 0 for none. Needs no_new_privs.

    Where the kernel knows them, TCP, abstract sockets and signals to the outside are closed as well.
    """
    version = abi()
    if version == 0:
        return 0
    ruleset = make_ruleset(
        ((path, READ_FILE | READ_DIR) for path in readable),
        net=NET_TCP,
        scoped=SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS,
    )
    try:
        enforce(ruleset)
    finally:
        os.close(ruleset)
    return version


def all_rights() -> int:
    """Return every right that this kernel knows, for a directory and what is beneath it."""
    return (1 << FS_BITS[min(abi(), 5)]) - 1


def make_ruleset(rules: Iterable[tuple[str, int]], *, net: int = 0, scoped: int = 0) -> int:
    """Return a descriptor: of files only what the rules give, of `net` and `scoped` nothing."""
    version = abi()
    closed = _Ruleset(fs=all_rights())
    closed.net = net if version >= 4 else 0
    closed.scoped = scoped if version >= SIGNALS_ABI else 0
    size = 24 if version >= SIGNALS_ABI else 16 if version >= 4 else 8
    ruleset = _call(CREATE_RULESET, ctypes.byref(closed), ctypes.c_size_t(size), 0)
    try:
        for path, access in rules:
            _allow(ruleset, path, access & closed.fs)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def enforce(ruleset: int) -> None:
    """Keep this thread, and what it starts, to the ruleset. Needs no_new_privs."""
    _call(RESTRICT_SELF, ruleset, 0)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there needs no permission
    try:
        directory = os.path.isdir(path)  # noqa: PTH112  (the child loads as little as it can)
        rule = _Beneath(access=access if directory else access & OF_A_FILE, directory=place)
        _call(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(place)


def _call(number: int, *arguments: Any) -> int:
    answer = int(_LIBRARY.syscall(number, *arguments))
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock call {number}: {os.strerror(code)}")
    return answer
