"""The HTTP API of the domain: sessions under /api/v1/capture, days under /api/v1/schedules."""

from fastapi import APIRouter

from actors.capture.api import schedules, sessions
from supervisor.api.view import ReplicaView

__all__ = ["routes"]


def routes(view: ReplicaView) -> APIRouter:
    router = APIRouter(tags=["capture"])
    router.include_router(sessions.routes(view))
    router.include_router(schedules.routes(view))
    return router
