"""How often a host may be asked: so many requests a minute, evenly spaced, over all that this process does
there.

There is no burst: a host that was not asked for an hour has no hour of requests saved up. A server that says
when to come back is obeyed by everybody here. NOT guaranteed: replicas do not know of each other's requests,
so a host sees at most as many times the rate as there are replicas that sync from it.
"""

from typing import Final

from supervisor.clock import Clock

__all__ = ["HostRate", "rate_of"]

# A little slower than allowed: timers wake early, and the rate is to stay below, not at, what was set.
SLACK: Final = 1.01


class HostRate:
    def __init__(self, rpm: int, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._rpm = rpm
        self._next = float("-inf")
        self._held_until = float("-inf")

    @property
    def rpm(self) -> int:
        return self._rpm

    async def turn(self) -> None:
        """Wait for a place in the row; places are given out in the order of asking."""
        while True:
            now = self._clock.now()
            place = max(now, self._next, self._held_until)
            self._next = place + 60 / self._rpm * SLACK
            if place > now:
                await self._clock.sleep(place - now)
            if self._clock.now() >= self._held_until:
                return

    def hold(self, seconds: float) -> None:
        """Nobody asks for so long; those who wait already come later."""
        self._held_until = max(self._held_until, self._clock.now() + seconds)

    def at_most(self, rpm: int) -> None:
        """The lowest rate that any repository of the host is given holds for the host."""
        self._rpm = min(self._rpm, rpm)


_RATES: Final[dict[str, HostRate]] = {}


def rate_of(host: str, rpm: int) -> HostRate:
    """The one rate of a host (name and port) in this process."""
    rate = _RATES.setdefault(host.lower(), HostRate(rpm))
    rate.at_most(rpm)
    return rate
