"""`/dedup/libraries`: what there is, what is done with it at the moment, and what went wrong."""

from typing import Annotated, Final

from fastapi import Query, Request, Response

from actors.dedup.api.models import LIBRARY_NAME
from actors.dedup.pages.counts import Counts, counted_at
from actors.dedup.pages.progress import KINDS, by_library
from supervisor.api.view import ReplicaView
from supervisor.console import page

PAGE: Final = 50
OPEN_JOBS: Final = 100


def add_to(router: page.PageRouter, replica: ReplicaView, counts: Counts) -> None:
    store = replica.store

    @router.get("/libraries")
    async def list_libraries(
        request: Request, after: Annotated[str | None, Query(pattern=LIBRARY_NAME)] = None
    ) -> Response:
        rows = await store.rows("see_libraries", after or "", PAGE + 1)
        counted = await counts.get()
        return page.render(
            request,
            "dedup/libraries.html",
            now=await store.value("see_clock"),
            libraries=rows[:PAGE],
            next_after=rows[PAGE - 1]["name"] if len(rows) > PAGE else None,
            is_first=after is None,
            counts=counted,
            counted_at=counted_at(counted),
            work=by_library(await store.rows("see_library_work", OPEN_JOBS)),
            kinds=KINDS,
        )
