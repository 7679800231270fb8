"""Where a look at what waits begins.

The index entries of runs that have moved on stay as long as any transaction of the server could still see
them, and with an old one open (a backup, a forgotten session) a look from the beginning passes all of them.
Where that takes its time, such looks get a twentieth of it, and one a second whatever it takes; those between
begin behind what was seen last. What came in before that place (an older run that was released, a larger
priority) waits for the next complete one, a second at most. Pure.
"""

from typing import Final, Generic, TypeVar

Place = TypeVar("Place")

SHARE: Final = 0.05
LONGEST_SECONDS: Final = 1.0
CHEAP_SECONDS: Final = 0.002
"""Nothing is in the way."""


class Skim(Generic[Place]):
    def __init__(self, beginning: Place) -> None:
        self._beginning = beginning
        self.place = beginning
        self._affordable_at = 0.0
        self._complete = True

    def begin(self, now: float) -> Place:
        """Behind what a look that begins now has to begin."""
        self._complete = now >= self._affordable_at
        return self._beginning if self._complete else self.place

    def ended(self, began: float, now: float, place: Place) -> None:
        """It was answered; what it saw and left alone lies behind `place`, or waits for a complete one."""
        self.place = place
        if self._complete and (took := now - began) > CHEAP_SECONDS:
            self._affordable_at = now + min(took * (1 / SHARE - 1), LONGEST_SECONDS)

    def rewind(self) -> None:
        """Something that was seen was left for soon: the next look begins at the beginning."""
        self._affordable_at = 0.0

    def patience(self, now: float, longest: float) -> float:
        """How long to rest: until a complete look can be had, when the last one was none."""
        return longest if self._complete else min(longest, max(0.0, self._affordable_at - now))
