"""`/events`: what was told to us, and the runs it made."""

from typing import Annotated, Final

from fastapi import Query, Request, Response

from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.console.runs import BIGINT

PAGE: Final = 50


def routes(replica: ReplicaView) -> page.PageRouter:
    router = page.PageRouter()

    @router.get("/events")
    async def list_events(
        request: Request,
        kind: Annotated[str, Query(alias="type", max_length=200)] = "",
        before: Annotated[int | None, Query(ge=1, le=BIGINT)] = None,
    ) -> Response:
        rows = await replica.store.rows("list_events", kind.strip() or None, before, PAGE)
        return page.render(
            request,
            "events.html",
            now=await replica.store.value("see_clock"),
            events=rows,
            kind=kind.strip(),
            before=before,
            next_before=rows[-1]["id"] if len(rows) == PAGE else None,
        )

    return router
