"""A kernel timer that kills this process, even while it is stopped.

`DeadMan.arm(deadline)` asks the kernel for SIGKILL at an instant of CLOCK_BOOTTIME. No code of ours has to
run for it: a process that was stopped, starved or suspended past its deadline is dead before it can act
again. Arming again replaces the deadline, whether the old one was earlier or later.

A POSIX timer belongs to the process that made it: a forked child has none, an exec deletes it. The layouts
below are Linux's on 64-bit machines (x86_64, aarch64).
"""

import ctypes
import math
import os
import signal
import threading
import time
from typing import Any, ClassVar

from supervisor.errors import TenureError

TIMER_ABSTIME = 1
SIGEV_SIGNAL = 0


class TimerRefused(TenureError):
    """the kernel refused {call} on CLOCK_BOOTTIME: {why}"""

    hint = "timers count against RLIMIT_SIGPENDING (`ulimit -i`), and a sandbox may forbid them"


class _SigEvent(ctypes.Structure):
    """struct sigevent: a union of the pointer's size, two ints, padded to 64 bytes."""

    _fields_: ClassVar[list[tuple[str, Any]]] = [
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("_pad", ctypes.c_char * (64 - ctypes.sizeof(ctypes.c_void_p) - 8)),
    ]


class _TimerSpec(ctypes.Structure):
    """struct itimerspec: two struct timespec, interval first."""

    _fields_: ClassVar[list[tuple[str, Any]]] = [
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    ]


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "timer_create"):  # glibc before 2.34 keeps timers in librt
        library = ctypes.CDLL("librt.so.1", use_errno=True)
    library.timer_create.argtypes = [ctypes.c_int, ctypes.POINTER(_SigEvent), ctypes.POINTER(ctypes.c_void_p)]
    library.timer_settime.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.POINTER(_TimerSpec),
        ctypes.c_void_p,
    ]
    library.timer_delete.argtypes = [ctypes.c_void_p]
    return library


_LIBRARY = _library()


def _check(call: str, answer: int) -> None:
    if answer != 0:
        raise TimerRefused(call=call, why=os.strerror(ctypes.get_errno()))


class KernelTimer:
    """One timer of this process that sends it `signum`; safe to use from any thread."""

    def __init__(self, signum: int) -> None:
        self._lock = threading.Lock()
        self._timer = ctypes.c_void_p()
        event = _SigEvent(signo=signum, notify=SIGEV_SIGNAL)
        created = _LIBRARY.timer_create(time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._timer))
        self._open = created == 0
        _check("timer_create", created)

    def arm(self, deadline: float, every: float = 0.0) -> None:
        """Signal at `deadline` (boottime seconds; at once when it is past), then each `every` seconds."""
        if not (math.isfinite(deadline) and math.isfinite(every) and every >= 0):
            raise ValueError(f"not an instant: {deadline}, {every}")
        # All zeros would disarm.
        self._set(max(deadline, 1e-6), every)

    def disarm(self) -> None:
        self._set(0.0, 0.0)

    def close(self) -> None:
        with self._lock:
            if self._open:
                self._open = False
                _check("timer_delete", _LIBRARY.timer_delete(self._timer))

    def _set(self, instant: float, every: float) -> None:
        seconds, interval = int(instant), int(every)
        spec = _TimerSpec(interval, int((every - interval) * 1e9), seconds, int((instant - seconds) * 1e9))
        with self._lock:
            if not self._open:
                raise ValueError("the timer is closed")
            _check(
                "timer_settime", _LIBRARY.timer_settime(self._timer, TIMER_ABSTIME, ctypes.byref(spec), None)
            )


class DeadMan(KernelTimer):
    """Kills this process at the deadline unless it is moved or taken away."""

    def __init__(self) -> None:
        super().__init__(signal.SIGKILL)
