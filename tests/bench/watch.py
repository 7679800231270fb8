"""What a piece of work costs here: its wall, and the CPU of this process, its programs and its servers."""

import os
import time
from types import TracebackType
from typing import Self

from tests.bench import cpu


class Watch:
    def __init__(self, *servers: int) -> None:
        self._counted = (os.getpid(), *servers)
        self.wall = self.cpu = 0.0

    def __enter__(self) -> Self:
        self._cpu = cpu.seconds_of(*self._counted)
        self._began = time.monotonic()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.wall = time.monotonic() - self._began
        self.cpu = cpu.seconds_of(*self._counted) - self._cpu

    def micros(self, count: int) -> float:
        return self.cpu / count * 1e6
