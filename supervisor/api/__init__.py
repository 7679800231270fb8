"""The HTTP edge of a replica: probes, metrics and status. Thin, and no SQL.

`/healthz` says that the process answers, and never touches the database: a database that is down must not
make Kubernetes restart every replica. `/readyz` says that it can work. Both and `/metrics` need no token.
Everything else does (access.py), also on loopback.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from supervisor.api.server import CannotListen, PortInUse, check_bind, serve
from supervisor.api.view import ReplicaView

if TYPE_CHECKING:
    from fastapi import FastAPI

    from supervisor.clock import Clock
    from supervisor.domain import Domain

__all__ = ["CannotListen", "PortInUse", "ReplicaView", "check_bind", "create_app", "serve"]


def create_app(
    replica: ReplicaView, domains: "Sequence[Domain]" = (), *, clock: "Clock | None" = None
) -> "FastAPI":
    """All the routes there are. Loaded when it is made: most replicas are only asked how they are."""
    from supervisor.api import app  # noqa: PLC0415

    return app.create_app(replica, domains, clock=clock)
