"""What the routes see of a replica."""

from collections.abc import Awaitable
from typing import Any, Protocol

from supervisor.config import Settings
from supervisor.store import Store


class Rendered(Protocol):
    def render(self) -> bytes:
        """The metrics as Prometheus text."""


class ReplicaView(Protocol):
    @property
    def worker_id(self) -> str: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def store(self) -> Store:
        """The control store."""

    @property
    def draining(self) -> bool: ...

    @property
    def metrics(self) -> Rendered: ...

    def status(self) -> Awaitable[dict[str, Any]]:
        """The figures of the whole database, cached."""
