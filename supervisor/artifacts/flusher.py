"""Directories that many flush at once: one of them does it for all who came before it began. Threads."""

import threading
from collections.abc import Callable
from typing import Final

REMEMBERED: Final = 1000

Directory = tuple[int, int]


class _Line:
    def __init__(self) -> None:
        self.came = 0
        self.served = 0
        self.busy = False


class Flusher:
    """`flush` returns when a flush that began after the call has ended. An error is the caller's own."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: dict[Directory, _Line] = {}

    def flush(self, directory: Directory, do: Callable[[], None]) -> None:
        with self._changed:
            line = self._line(directory)
            line.came += 1
            mine = line.came
            while line.busy:
                self._changed.wait()
                if line.served >= mine:
                    return
            line.busy = True
            all_now = line.came
        try:
            do()
        except BaseException:
            self._end(line, line.served)
            raise
        self._end(line, all_now)

    def _end(self, line: _Line, served: int) -> None:
        with self._changed:
            line.busy = False
            line.served = max(line.served, served)
            self._changed.notify_all()

    def _line(self, directory: Directory) -> _Line:
        if len(self._lines) >= REMEMBERED:
            self._lines = {key: line for key, line in self._lines.items() if line.served < line.came}
        return self._lines.setdefault(directory, _Line())
