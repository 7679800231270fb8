"""The HTTP API of the domain, under /api/v1/scm: repositories, syncs, and evidence that is verified."""

from fastapi import APIRouter

from actors.scm.api import evidence, repos, syncs
from supervisor.api.view import ReplicaView

__all__ = ["routes"]


def routes(view: ReplicaView) -> APIRouter:
    router = APIRouter(prefix="/scm", tags=["scm"])
    for part in (repos, syncs, evidence):
        router.include_router(part.routes(view))
    return router
