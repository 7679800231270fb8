"""Hosts by name only: every process on loopback, every way between two hosts through a relay.

For machines where namespaces are not allowed. A relay cannot lose packets, and a link that is down is a cut
of all its ways: the other end is not told.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import ClassVar

from tests.chaos.layer import NotHere, Way
from tests.chaos.relay import Relay
from tests.chaos.web import fetch

LOOPBACK = "127.0.0.1"


class Proxies:
    # a method that needs no host here takes it all the same: layers are interchangeable
    name: ClassVar[str] = "proxies"
    can: ClassVar[frozenset[str]] = frozenset({"cut", "one-way", "rate", "delay", "link"})

    def __init__(self) -> None:
        self._relays: dict[tuple[str, str], list[Relay]] = {}
        self._cuts: dict[tuple[str, str], Way] = {}
        self._down: set[str] = set()

    def open(self, hosts: Sequence[str]) -> None:
        """Nothing to make: names are enough."""

    def close(self) -> None:
        for relays in self._relays.values():
            for relay in relays:
                relay.close()

    def enter(self, host: str) -> list[str]:  # noqa: ARG002
        return []

    def address(self, host: str) -> str:  # noqa: ARG002
        return LOOPBACK

    def port(self, usual: int) -> int:  # noqa: ARG002
        with socket.create_server((LOOPBACK, 0)) as probe:
            return int(probe.getsockname()[1])

    async def way(self, source: str, target: str, port: int, *, relayed: bool = True) -> tuple[str, int]:  # noqa: ARG002
        relay = Relay((LOOPBACK, port))
        self._relays.setdefault((source, target), []).append(relay)
        return await relay.open(LOOPBACK)

    async def cut(self, source: str, target: str, way: Way = "both") -> None:
        self._cuts[source, target] = way
        self._apply(source, target)

    async def heal(self, source: str, target: str) -> None:
        self._cuts.pop((source, target), None)
        for relay in self._relays.get((source, target), ()):
            relay.heal()
        self._apply(source, target)

    async def delay(self, source: str, target: str, seconds: float, jitter: float) -> None:
        for relay in self._relays.get((source, target), ()):
            relay.delay_seconds, relay.jitter_seconds = seconds, jitter

    async def loss(self, host: str, percent: int) -> None:  # noqa: ARG002
        raise NotHere("loss of packets: a relay forwards streams")

    async def rate(self, host: str, kbit: int) -> None:
        for pair, relays in self._relays.items():
            if host in pair:
                for relay in relays:
                    relay.bytes_per_second = kbit * 125.0

    async def link(self, host: str, *, up: bool) -> None:
        (self._down.discard if up else self._down.add)(host)
        for source, target in self._relays:
            if host in (source, target):
                self._apply(source, target)

    async def get(self, host: str, port: int, path: str) -> str:  # noqa: ARG002
        return await asyncio.to_thread(fetch, LOOPBACK, port, path)

    def _apply(self, source: str, target: str) -> None:
        way = "both" if self._down & {source, target} else self._cuts.get((source, target))
        for relay in self._relays.get((source, target), ()):
            relay.open_gates()
            if way is not None:
                relay.cut(requests=way != "replies", replies=way != "requests")
