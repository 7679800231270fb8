"""Measure how much slower than a quiet machine this one is, all through a test run.

A bound on a wait says how long something takes on a quiet machine. On a busy one it takes longer. So
bounds are counted in seconds of a quiet machine: `Allowance` for a wait that looks again and again,
`patient` for a timeout that is handed to another library.

The measuring process is separate: a test process that waits for its interpreter lock would see only
itself. It publishes the slowness of the last five seconds in the run's directory and ends with the test
run, also when that is killed.
"""

import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Final, NamedTuple

ROOT: Final = "TENURE_TEST_ROOT"
"""Names the directory of the test run in the environment of its processes."""
INTERVAL_SECONDS: Final = 0.2
SAMPLES: Final = 25
WORK_SECONDS: Final = 0.0005
"""The processor time of `_work` on the machine that the bounds were written on."""
AT_LEAST: Final = 3.0
"""The machine may become slow after a timeout was handed over."""
USUAL: Final = 4.0
"""The slowness that this suite causes by itself."""
LONGEST: Final = 8.0
"""A stop bound of 7 s times this is just below the 60 s of the domains' leases."""
FORMAT: Final = "d"


class Sample(NamedTuple):
    """`queue`: runnable processes per core times the slowness of a core; `late`: how late a timer woke up."""

    queue: float
    late: float


def slowness() -> float:
    """Return 1 for a quiet machine, more for a slow one; 1 where nothing measures."""
    source = _source(os.environ.get(ROOT))
    published = b"" if source is None else os.pread(source, struct.calcsize(FORMAT), 0)
    return float(struct.unpack(FORMAT, published)[0]) if published else 1.0


def patient(seconds: float) -> float:
    """Return a timeout for a call that cannot look again in between."""
    return seconds * max(AT_LEAST, slowness())


def stretch() -> float:
    """Return a factor for the protocol's timings in real processes.

    On a crowded machine beats come late, and a worker that is later than its timings allow is stopped.
    Quarters keep the relations between the timings exact.
    """
    return min(LONGEST, max(1.0, ceil(4 * slowness() / USUAL) / 4))


def machine() -> str:
    """Return what a failure says about the machine."""
    return f"slowness {slowness():.1f}, load {Path('/proc/loadavg').read_text().split()[0]}"


class Allowance:
    """A number of seconds of a quiet machine; a slow one uses them up more slowly."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        slowness: Callable[[], float] = slowness,
    ) -> None:
        self._seconds = self._left = seconds
        self._clock, self._slowness = clock, slowness
        self._began = self._looked = clock()

    def used_up(self) -> bool:
        now = self._clock()
        self._left -= (now - self._looked) / self._slowness()
        self._looked = now
        return self._left <= 0

    def __str__(self) -> str:
        waited = self._clock() - self._began
        return f"{self._seconds:g} s of a quiet machine ({waited:.1f} s here, {machine()})"


def start_measuring(root: Path) -> "subprocess.Popen[bytes]":
    """Start the measuring process; it ends when its standard input does."""
    command = [sys.executable, "-m", "tests.support.slowness", str(root)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def slowness_of(samples: Sequence[Sample]) -> float:
    """Return the mean queue, since one moment says little, or the worst stop of the whole machine."""
    return max(1.0, mean(one.queue for one in samples), *(one.late for one in samples))


@cache
def _source(root: str | None) -> int | None:
    try:
        return None if root is None else os.open(Path(root, "slowness"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _measure(root: Path) -> None:
    samples: deque[Sample] = deque([Sample(1, 1)], maxlen=SAMPLES)
    target = os.open(root / "slowness", os.O_WRONLY | os.O_CREAT, 0o644)
    while True:
        os.pwrite(target, struct.pack(FORMAT, slowness_of(samples)), 0)
        slept = time.monotonic()
        if select.select([sys.stdin], [], [], INTERVAL_SECONDS)[0]:
            return
        late = (time.monotonic() - slept) / INTERVAL_SECONDS
        samples.append(Sample(_queue() * _work(), late))


def _queue() -> float:
    """Return the runnable processes per core, without this one."""
    lines = Path("/proc/stat").read_text().splitlines()
    running = next(int(line.split()[1]) for line in lines if line.startswith("procs_running "))
    return max(1.0, (running - 1) / len(os.sched_getaffinity(0)))


def _work() -> float:
    """Return how slow a core is, by the processor time of a fixed piece of work."""
    began = time.thread_time()
    sum(range(20_000))
    return max(1.0, (time.thread_time() - began) / WORK_SECONDS)


if __name__ == "__main__":
    _measure(Path(sys.argv[1]))
