"""Landlock: this thread and what it starts may read the named directories, and nothing else of the disk.

Descriptors that were opened elsewhere and handed over stay usable; that is all a chamber works on. Where the
kernel knows them, TCP, abstract sockets and signals to the outside are closed as well. The layouts and
numbers are the same on x86_64 and aarch64.
"""

import ctypes
import os
from collections.abc import Iterable
from typing import Any, ClassVar

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_FLAG = 1
PATH_BENEATH = 1
READ_FILE, READ_DIR = 1 << 2, 1 << 3
# Rights of the file system by ABI: 13 at first, then REFER, TRUNCATE, and with 5 IOCTL_DEV.
FS_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
NET_TCP, SCOPE_ABSTRACT_AND_SIGNAL = 0b11, 0b11


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
    """0 where the kernel has no Landlock, or a sandbox forbids asking."""
    return max(0, int(_LIBRARY.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION_FLAG)))


def restrict(readable: Iterable[str]) -> int:
    """Give up everything but reading below `readable`; the ABI in force, 0 for none. Needs no_new_privs."""
    version = abi()
    if version == 0:
        return 0
    rules = _Ruleset(fs=(1 << FS_BITS[min(version, 5)]) - 1)
    rules.net = NET_TCP if version >= 4 else 0
    rules.scoped = SCOPE_ABSTRACT_AND_SIGNAL if version >= 6 else 0
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _call(CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    try:
        for path in readable:
            _allow(ruleset, path)
        _call(RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return version


def _allow(ruleset: int, path: str) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there needs no permission
    try:
        directory = os.path.isdir(path)  # noqa: PTH112  (the child loads as little as it can)
        rule = _Beneath(access=READ_FILE | READ_DIR if directory else READ_FILE, directory=place)
        _call(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(place)


def _call(number: int, *arguments: Any) -> int:
    answer = int(_LIBRARY.syscall(number, *arguments))
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock call {number}: {os.strerror(code)}")
    return answer
