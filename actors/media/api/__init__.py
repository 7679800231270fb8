"""The HTTP API of the domain, under /api/v1/media. Every refusal is a problem with a `code` (refusals.py).

A write that the rules reject is a 4xx, is written down like any other, and can be read again by its id.
"""

from dataclasses import asdict
from uuid import UUID

from fastapi import APIRouter

from actors.media.api import blobs, refs
from actors.media.api.models import Health, HealthCheck, Story
from actors.media.api.refusals import Route, documented
from actors.media.health import check_health, is_healthy
from actors.media.shelf import open_shelf
from supervisor.api.view import ReplicaView
from supervisor.errors import NotFound
from supervisor.store import Store
from supervisor.stored_json import readable

__all__ = ["routes"]


class Records:
    """What is written down, and whether it is as it must be."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def replay(self, request_id: UUID) -> Story:
        """What was asked, decided, done and answered under this id, in its order."""
        rows = await self._store.rows("list_request_events", request_id)
        if not rows:
            raise NotFound(kind="request", name=request_id)
        events = [{**row, "payload": readable(row["payload"])} for row in rows]
        return Story(
            request_id=request_id,
            decision=next((row["decision"] for row in rows if row["decision"]), None),
            result=next((row["result"] for row in rows if row["result"]), None),
            events=events,
        )

    async def health(self) -> Health:
        """Five checks; `ok` is false where one of them failed. It only reads."""
        checks = await check_health(self._store)
        shown = [HealthCheck.model_validate(asdict(check)) for check in checks]
        return Health(ok=is_healthy(checks), checks=shown)


def routes(view: ReplicaView) -> APIRouter:
    router = APIRouter(prefix="/media", tags=["media"], route_class=Route)
    records = Records(view.store)
    router.include_router(blobs.routes(view, open_shelf(view.settings)))
    router.include_router(refs.routes(view))
    router.add_api_route(
        "/requests/{request_id}",
        records.replay,
        methods=["GET"],
        summary="Replay a request",
        responses=documented(404),
    )
    router.add_api_route(
        "/health", records.health, methods=["GET"], summary="Check media", responses=documented()
    )
    return router
