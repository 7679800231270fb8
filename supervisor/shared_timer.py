"""One kernel timer for several holders: it stands at the earliest of their deadlines."""

import threading

from supervisor.claims import Timer


class SharedTimer:
    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._lock = threading.Lock()
        self._deadlines: dict[int, float] = {}
        self._standing: float | None = None

    def share(self) -> Timer:
        return _Share(self)

    def put(self, holder: int, deadline: float | None) -> None:
        with self._lock:
            if deadline is None:
                self._deadlines.pop(holder, None)
            else:
                self._deadlines[holder] = deadline
            earliest = min(self._deadlines.values(), default=None)
            if earliest == self._standing:
                return
            if earliest is None:
                self._timer.disarm()
            else:
                self._timer.arm(earliest)
            self._standing = earliest


class _Share:
    def __init__(self, shared: SharedTimer) -> None:
        self._shared = shared

    def arm(self, deadline_boottime: float) -> None:
        self._shared.put(id(self), deadline_boottime)

    def disarm(self) -> None:
        self._shared.put(id(self), None)
