"""The HTTP API of the domain, under /api/v1. It asks and shows; what takes long is done by whoever claims it.

Listings are by keyset, with cursors that are believed in nothing (cursors.py). Every refusal is a problem
with a `code` (refusals.py). The worker's part of the protocol is there where a replica lends its rights.
"""

from fastapi import APIRouter

from actors.dedup.api import duplicates, jobs, libraries, maintenance, thumbs, worker
from supervisor.api.view import ReplicaView

__all__ = ["routes"]


def routes(view: ReplicaView) -> APIRouter:
    router = APIRouter()
    if isinstance(view, worker.WorkerView):
        router.include_router(worker.routes(view, view.work_store))
    for noun in (jobs, duplicates, thumbs, maintenance, libraries):
        router.include_router(noun.routes(view))
    return router
