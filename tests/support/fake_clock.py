"""A clock that stands still until it is told how much time has passed."""

from supervisor.clock import Clock


class FakeClock(Clock):
    def __init__(self, now: float = 1000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self.pass_seconds(max(0.0, seconds))

    def pass_seconds(self, seconds: float) -> None:
        self._now += seconds
