"""`/late`: what is late and why, who was cut off, and what became of their work."""

from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from fastapi import Query, Request, Response

from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.console.attention import LATE_SECONDS
from supervisor.console.kept import Kept
from supervisor.console.run import sentence_of, unnamed_runs
from supervisor.store import Record
from supervisor.why import Why, explain_all, given_up_at

PAGE: Final = 50
LIST: Final = 100
LATE: Final = 20
"""Each of them is explained."""
LOST: Final = 50
KEPT_SECONDS: Final = 5.0


def routes(replica: ReplicaView) -> page.PageRouter:
    router = page.PageRouter()
    store, timings = replica.store, replica.settings.timings

    async def read_late() -> list[tuple[Record, Why]]:
        rows = await store.rows("see_late_runs", LATE_SECONDS, LATE + 1)
        found = await explain_all(store, [row["id"] for row in rows], timings)
        return [(row, found[row["id"]]) for row in rows if row["id"] in found]

    late = Kept(read_late, KEPT_SECONDS)

    @router.get("/late")
    async def show(
        request: Request,
        at: Annotated[datetime | None, Query()] = None,
        claim: Annotated[UUID | None, Query()] = None,
    ) -> Response:
        if at is not None and at.tzinfo is None:
            at = None
        waiting = await late.get()
        leader = await store.row("show_leader")
        assert leader is not None  # noqa: S101  the row is never deleted
        finishes = await store.rows("see_late_finishes", at, claim, PAGE)
        status = await replica.status()
        return page.render(
            request,
            "late.html",
            now=leader["now"],
            late=[(row, why.reason, sentence_of(why), unnamed_runs(why)) for row, why in waiting[:LATE]],
            late_seconds=LATE_SECONDS,
            more_late=len(waiting) > LATE,
            lost=await store.rows("see_lost_attempts", LOST),
            finishes=finishes,
            more=finishes[-1] if len(finishes) == PAGE else None,
            confirming=[
                (row, given_up_at(row["deadline_at"], leader["since"], timings) if leader["live"] else None)
                for row in await store.rows("list_confirming", LIST)
            ],
            orphaned=await store.rows("list_orphaned", LIST),
            leases=status["leases"],
        )

    return router
