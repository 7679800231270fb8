"""`/leadership`: who leads, who led, when nobody did; and making the leader step down."""

from datetime import timedelta
from typing import Annotated, Final

from fastapi import Query, Request, Response

from supervisor import operations
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.console.attention import Unheard
from supervisor.console.forms import Admin, Form, text_of
from supervisor.console.tenures import reign
from supervisor.errors import BadInput

LOG: Final = 400
SHOWN: Final = 12
HOURS: Final = (1, 6, 24, 168)


def routes(replica: ReplicaView) -> page.PageRouter:
    router = page.PageRouter()
    store = replica.store

    @router.get("/leadership")
    async def show(
        request: Request, hours: Annotated[int | None, Query(ge=1, le=24 * 366)] = None
    ) -> Response:
        leader = await store.row("show_leader")
        assert leader is not None  # noqa: S101  the row is never deleted
        log = await store.rows("list_tenures", LOG)
        taken = [row["at"] for row in log if row["what"] == "ACQUIRED"]
        newest = taken[min(len(taken), SHOWN) - 1] if taken else None
        since = leader["now"] - timedelta(hours=hours) if hours else newest
        return page.render(
            request,
            "leadership.html",
            now=leader["now"],
            leader=leader,
            unheard=Unheard.of(dict(leader), replica.settings.timings.renew_retry),
            reign=reign([dict(row) for row in log], dict(leader), since),
            hours=hours,
            choices=HOURS,
        )

    @router.post("/leadership")
    async def resign(request: Request, form: Form, admin: Admin) -> Response:
        if text_of(form, "sure") != "yes":
            raise BadInput(what="tick the box to say that the leader shall resign")
        asked = await operations.resign(store, admin.name)
        text = f"{asked.worker_id} was asked to resign epoch {asked.epoch}; another replica takes over."
        return page.done(request, "/leadership", text)

    return router
