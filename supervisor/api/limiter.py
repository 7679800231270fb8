"""Bounds on what those can cost who have not proven anything yet. None of them refuses a right credential.

`Guesses`: wrong guesses at a token that people choose, by client address. A guess is compared at once. When
the address has no guess left, every answer to it comes PAUSE_SECONDS late, the right one too, and a wrong one
is refused. So whoever guesses learns nothing sooner by asking more often, nor by going away: he has to wait
with each guess, and an address has a bounded number of connections to wait with. Who has the right token
waits too while others guess from his address, and is let in.

`Turnstile`: how many credentials are looked up in one moment, and for each address one. Others wait, each
address in a line of its own, so that a stranger keeps nobody waiting but those at his own address. The lines
need no bound here: each who waits has a connection, and these are bounded.

Both live in the process: N replicas allow N times as much.
"""

import ipaddress
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from math import ceil
from typing import Final, Generic, TypeVar

import anyio

from supervisor.api.recent import Recent
from supervisor.clock import Clock
from supervisor.errors import TenureError
from supervisor.logs import logger

BURST: Final = 10
REFILL_SECONDS: Final = 6.0
PAUSE_SECONDS: Final = 3.0
ADDRESSES: Final = 10_000

K = TypeVar("K", bound=Hashable)

_log = logger("api")


class TooManyRefusals(TenureError):
    """too many wrong credentials from this address"""

    hint = "try again in {seconds} s"
    http_status = 429


class Guesses:
    """A bucket of BURST wrong guesses for each address, filled again by one every REFILL_SECONDS."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._full_at: Recent[str, float] = Recent(ADDRESSES)

    async def weigh(self, address: str, *, right: bool) -> None:
        """Return when the guess may be answered; raise where it was one too many and wrong."""
        spent = self._spent(address)
        if not right:
            self._note(address, spent)
        if spent <= BURST - 1:
            return
        await self._clock.sleep(PAUSE_SECONDS)
        if not right:
            seconds = (self._spent(address) - (BURST - 1)) * REFILL_SECONDS
            raise TooManyRefusals(seconds=max(1, ceil(seconds)))

    def _note(self, address: str, spent: float) -> None:
        now_spent = min(spent + 1, BURST)
        self._full_at.put(network_of(address), self._clock.now() + now_spent * REFILL_SECONDS)
        if spent <= BURST - 1 < now_spent:
            _log.warning("too many wrong credentials", address=address)

    def _spent(self, address: str) -> float:
        full_at = self._full_at.get(network_of(address))
        return 0 if full_at is None else max(0.0, full_at - self._clock.now()) / REFILL_SECONDS


def network_of(address: str) -> str:
    """Who has an IPv6 address has 2**64 of them."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed), 64), strict=False))


class Lines(Generic[K]):
    """A line of waiting tasks for each key, of which the first goes on."""

    def __init__(self) -> None:
        self._locks: dict[K, anyio.Lock] = {}

    @asynccontextmanager
    async def turn(self, key: K) -> AsyncIterator[None]:
        lock = self._locks.setdefault(key, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and not lock.statistics().tasks_waiting:
                self._locks.pop(key, None)


class Turnstile:
    def __init__(self, at_once: int) -> None:
        self._places = anyio.Semaphore(at_once)
        self._lines: Lines[str] = Lines()

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        async with self._lines.turn(network_of(address)), self._places:
            yield
