"""A filter for commands that have the replica's own user: no limits for other processes.

Landlock keeps these commands from signalling and tracing other processes. It does not keep them from setting
another process's limits, after which the kernel ends it for them. So prlimit works for the caller itself,
named by 0, and for nobody else. Calls of 32-bit programs are filtered too: any program can make them.
"""

import errno
import platform
from collections.abc import Mapping
from functools import cache
from typing import Final

from supervisor.bpf import (
    ALLOW,
    ARCHITECTURE,
    AT_LEAST,
    EQUAL,
    ERRNO,
    FIRST_ARGUMENT,
    LOAD,
    NUMBER,
    X32,
    answer,
    put_in_force,
    step,
    when,
)

PRLIMIT: Final[Mapping[str, Mapping[int, int]]] = {
    "x86_64": {0xC000003E: 302, 0x40000003: 340},
    "aarch64": {0xC00000B7: 261, 0x40000028: 369},
}
"""Its number in each architecture whose programs such a machine runs."""


def keep_limits_to_oneself() -> bool:
    """Put the filter in force for this thread and what it starts; False where there is none."""
    machine = platform.machine()
    return machine in PRLIMIT and put_in_force(program(machine))


@cache
def program(machine: str) -> bytes:
    refuse, allow = answer(ERRNO | errno.EPERM), answer(ALLOW)
    code = b""
    for architecture, number in PRLIMIT[machine].items():
        calls = step(LOAD, NUMBER) + step(AT_LEAST, X32, 0, 1) + refuse
        calls += when(number, step(LOAD, FIRST_ARGUMENT), step(EQUAL, 0, 1, 0), refuse, allow) + allow
        code += step(LOAD, ARCHITECTURE) + step(EQUAL, architecture, 0, len(calls) // 8) + calls
    return code + allow
