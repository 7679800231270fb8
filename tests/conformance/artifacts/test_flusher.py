"""One flush for many: nobody returns on the strength of a flush that began before he came."""

import threading
from collections.abc import Callable

import pytest

from supervisor.artifacts.flusher import Flusher
from tests.support.slowness import patient

HERE = (1, 1)


class Gate:
    """A flush that ends when it is told to; it knows which names it has seen."""

    def __init__(self) -> None:
        self.names: set[int] = set()
        self.durable: set[int] = set()
        self.flushes = 0
        self.begun = threading.Event()
        self.go = threading.Event()

    def flush(self) -> None:
        self.flushes += 1
        seen = set(self.names)
        self.begun.set()
        assert self.go.wait(patient(30))
        self.durable |= seen


def started(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_those_who_wait_share_the_next_flush() -> None:
    gate, flusher = Gate(), Flusher()
    missed: list[int] = []

    def write(n: int) -> None:
        gate.names.add(n)
        flusher.flush(HERE, gate.flush)
        if n not in gate.durable:
            missed.append(n)

    first = started(lambda: write(0))
    assert gate.begun.wait(patient(30))
    others = [started(lambda n=n: write(n)) for n in range(1, 20)]  # type: ignore[misc]
    while flusher._lines[HERE].came < 20:
        pass
    gate.go.set()
    for thread in (first, *others):
        thread.join(patient(30))
    assert missed == []
    assert gate.flushes == 2


def test_an_error_is_everybodys_own() -> None:
    flusher = Flusher()
    calls = 0

    def broken() -> None:
        nonlocal calls
        calls += 1
        raise OSError("the disk")

    for _ in range(3):
        with pytest.raises(OSError, match="the disk"):
            flusher.flush(HERE, broken)
    assert calls == 3
    flusher.flush(HERE, lambda: None)


def test_directories_are_forgotten() -> None:
    flusher = Flusher()
    for n in range(2500):
        flusher.flush((1, n), lambda: None)
    assert len(flusher._lines) <= 1000
