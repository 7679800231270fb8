"""A breaker for something that may fail without harm: after a failure it is left alone for a while.

Closed, every call goes. A failure opens it, and no call goes until a pause is over (longer each time, with
jitter); then a trial may be made, and its success closes it. A trial that is never reported, because whoever
made it was cancelled, only costs until the next one.
"""

from typing import Final

from supervisor.clock import Clock, jitter

PAUSE_SECONDS: Final = 3.0
LONGEST_SECONDS: Final = 30.0
TRIAL_SECONDS: Final = 1.0


class Breaker:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._pause = PAUSE_SECONDS
        self._trial_at: float | None = None

    @property
    def open(self) -> bool:
        return self._trial_at is not None

    def try_again(self) -> bool:
        """Open, and the pause is over: the caller makes the trial."""
        now = self._clock.now()
        if self._trial_at is None or now < self._trial_at:
            return False
        self._trial_at = now + TRIAL_SECONDS
        return True

    def failed(self) -> None:
        self._trial_at = self._clock.now() + jitter(self._pause)
        self._pause = min(self._pause * 2, LONGEST_SECONDS)

    def succeeded(self) -> None:
        self._trial_at = None
        self._pause = PAUSE_SECONDS
