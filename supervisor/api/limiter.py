"""Bounds on what those can cost who have not proven anything yet.

`Limiter`: wrong credentials by client address. `Turnstile`: how many are looked at in one moment, and how
many may wait for it. Both live in the process: N replicas allow N times as much.
"""

import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil
from typing import Final

import anyio

from supervisor.api.recent import Recent
from supervisor.clock import Clock
from supervisor.errors import TenureError

BURST: Final = 10
REFILL_SECONDS: Final = 6.0
ADDRESSES: Final = 10_000


class TooManyRefusals(TenureError):
    """too many wrong credentials from this address"""

    hint = "try again in {seconds} s"
    http_status = 429


class Busy(TenureError):
    """too many credentials are being looked at"""

    hint = "try again in {seconds} s"
    http_status = 429


class Limiter:
    """A bucket of BURST failures for each address, filled again by one every REFILL_SECONDS."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._full_at: Recent[str, float] = Recent(ADDRESSES)

    def check(self, address: str) -> None:
        spent = self._spent(address)
        if spent > BURST - 1:
            raise TooManyRefusals(seconds=ceil((spent - (BURST - 1)) * REFILL_SECONDS))

    def note_failure(self, address: str) -> bool:
        """Whether this was the last one that it had."""
        now, spent = self._clock.now(), min(self._spent(address) + 1, BURST)
        self._full_at.put(network_of(address), now + spent * REFILL_SECONDS)
        return spent > BURST - 1

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


class Turnstile:
    def __init__(self, at_once: int, waiting: int) -> None:
        self._places = anyio.Semaphore(at_once)
        self._most = at_once + waiting
        self._inside = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        if self._inside >= self._most:
            raise Busy(seconds=1)
        self._inside += 1
        try:
            async with self._places:
                yield
        finally:
            self._inside -= 1
