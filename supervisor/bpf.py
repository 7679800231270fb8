"""The parts that filters of system calls are made of, and how one is put in force. Standard library only."""

import ctypes
import struct
from typing import Any, ClassVar

PR_SET_SECCOMP, MODE_FILTER = 22, 2
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
# Of the argument the lower half, in which what is compared fits.
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
X32 = 0x40000000
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


class _Program(ctypes.Structure):
    _fields_: ClassVar[list[tuple[str, Any]]] = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def answer(verdict: int) -> bytes:
    return step(RETURN, verdict)


def when(number: int, *steps: bytes) -> bytes:
    """`steps`, which end in an answer, for this call only; the number is loaded."""
    size = sum(map(len, steps)) // 8
    return step(EQUAL, number, 0, size) + b"".join(steps)


def put_in_force(code: bytes) -> bool:
    """Filter the calls of this thread and of what it starts; False where the kernel does not."""
    filters = _Program(len(code) // 8, code)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return int(prctl(PR_SET_SECCOMP, ctypes.c_ulong(MODE_FILTER), ctypes.byref(filters), 0, 0)) == 0
