"""`/workers`: the replicas, what each holds, when it was last heard; and draining one."""

from collections import defaultdict
from typing import Annotated, Final

from fastapi import Query, Request, Response

from supervisor import operations
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.console.forms import Form, Operator, text_of
from supervisor.store import Record

HELD: Final = 2000


def routes(replica: ReplicaView) -> page.PageRouter:
    router = page.PageRouter()
    store = replica.store

    @router.get("/workers")
    async def list_workers(request: Request, every: Annotated[bool, Query(alias="all")] = False) -> Response:
        leader = await store.row("show_leader")
        assert leader is not None  # noqa: S101  the row is never deleted
        held: dict[str, list[Record]] = defaultdict(list)
        for row in await store.rows("see_held_runs", HELD):
            held[row["worker_id"]].append(row)
        return page.render(
            request,
            "workers.html",
            now=leader["now"],
            workers=await store.rows("list_replicas", every),
            leader=leader["worker_id"] if leader["live"] else None,
            held=held,
            every=every,
            confirm_after=replica.settings.timings.confirm_after,
        )

    @router.post("/workers")
    async def drain(request: Request, form: Form, operator: Operator) -> Response:
        asked = await operations.drain(store, operator.name, text_of(form, "worker"))
        already = "was asked" if asked.requested else "had been asked already"
        text = f"{asked.worker_id} {already} to drain: it takes no more work, gives back or ends what it has."
        return page.done(request, "/workers", text)

    return router
