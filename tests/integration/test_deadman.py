"""The dead man's timer, in processes of its own: it kills."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from supervisor.deadman import DeadMan, KernelTimer
from tests.support.slowness import patient, stretch

PRELUDE = """
import sys, time
from supervisor.deadman import DeadMan
def now(): return time.clock_gettime(time.CLOCK_BOOTTIME)
man = DeadMan()
"""


@contextmanager
def process(code: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"{PRELUDE}unit = {stretch()}\n{code}\nprint('ready', flush=True)\nsys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout
        assert child.stdout.readline() == b"ready\n"
        try:
            yield child
        finally:
            child.kill()


def test_kills_a_stopped_process_on_time() -> None:
    """C07: a process that was stopped cannot wake up and act."""
    begun = time.monotonic()
    with process("man.arm(now() + 0.8 * unit)") as child:
        child.send_signal(signal.SIGSTOP)
        assert child.wait(patient(1.5)) == -signal.SIGKILL
        assert time.monotonic() - begun > 0.8


def test_a_deadline_in_the_past_kills_at_once() -> None:
    child = subprocess.run(
        [sys.executable, "-c", f"{PRELUDE}man.arm(-5.0); time.sleep(600)"], check=False, timeout=patient(8)
    )
    assert child.returncode == -signal.SIGKILL


def test_rearming_postpones_and_disarming_lets_live() -> None:
    code = """
man.arm(now() + 0.3 * unit)
man.arm(now() + 600)
time.sleep(0.6 * unit)
man.arm(now() + 0.3 * unit)
man.disarm()
man.disarm()
time.sleep(0.6 * unit)
"""
    with process(code) as child:
        assert child.poll() is None
        assert child.stdin
        child.stdin.close()
        assert child.wait(patient(5)) == 0


def test_rearming_can_also_advance() -> None:
    with process("man.arm(now() + 600); man.arm(now() + 0.5 * unit)") as child:
        assert child.wait(patient(5)) == -signal.SIGKILL


def test_arming_from_many_threads_leaves_one_deadline() -> None:
    code = """
import threading
def often():
    for _ in range(200): man.arm(now() + 600)
threads = [threading.Thread(target=often) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
man.arm(now() + 0.5 * unit)
"""
    with process(code) as child:
        assert child.wait(patient(10)) == -signal.SIGKILL


def test_a_forked_child_does_not_inherit_it() -> None:
    code = "import os\nman.arm(now() + 0.2 * unit)\nif os.fork(): time.sleep(600)\ntime.sleep(0.6 * unit)"
    with process(code) as child:
        assert child.wait(patient(5)) == -signal.SIGKILL  # "ready" came from the survivor


@pytest.mark.parametrize("deadline", [float("nan"), float("inf"), -float("inf")])
def test_refuses_what_is_no_instant(deadline: float) -> None:
    man = DeadMan()
    with pytest.raises(ValueError, match="not an instant"):
        man.arm(deadline)
    man.close()
    with pytest.raises(ValueError, match="closed"):
        man.disarm()


def test_a_refusal_of_the_kernel_is_told() -> None:
    code = """
import resource
from supervisor.deadman import TimerRefused
resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, 0))
try: DeadMan()
except TimerRefused as refusal: print(refusal, '|', refusal.advice)
"""
    answer = subprocess.run(
        [sys.executable, "-c", PRELUDE + code], capture_output=True, check=True, timeout=patient(10)
    )
    assert b"the kernel refused timer_create on CLOCK_BOOTTIME" in answer.stdout
    assert b"RLIMIT_SIGPENDING" in answer.stdout


def test_a_timer_can_repeat() -> None:
    heard: list[int] = []
    old = signal.signal(signal.SIGCONT, lambda signum, _frame: heard.append(signum))
    timer = KernelTimer(signal.SIGCONT)
    try:
        timer.arm(0.0, every=0.02)
        deadline = time.monotonic() + patient(5)
        while len(heard) < 3 and time.monotonic() < deadline:
            signal.sigtimedwait([], 0.05)
        assert len(heard) >= 3
    finally:
        timer.close()
        signal.signal(signal.SIGCONT, old)
