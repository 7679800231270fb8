"""`/domains`: the kinds of work, what waits in each, and pausing one."""

from collections import defaultdict

from fastapi import Request, Response

from supervisor import operations
from supervisor.api.view import ReplicaView
from supervisor.cli.inputs import run_actors
from supervisor.console import page
from supervisor.console.forms import Form, Operator, text_of
from supervisor.errors import BadInput


def routes(replica: ReplicaView) -> page.PageRouter:
    router = page.PageRouter()
    store = replica.store

    @router.get("/domains")
    async def list_domains(request: Request) -> Response:
        waiting: dict[str, dict[str, int]] = defaultdict(dict)
        for row in await store.rows("see_live_counts"):
            waiting[row["domain"]][row["state"]] = row["runs"]
        return page.render(
            request,
            "domains.html",
            now=await store.value("see_clock"),
            domains=await operations.known_domains(store, replica.settings.timings.confirm_after),
            with_runs=set(run_actors()),
            waiting=waiting,
        )

    @router.post("/domains")
    async def switch(request: Request, form: Form, operator: Operator) -> Response:
        domain, what = text_of(form, "domain"), text_of(form, "do")
        if what not in ("pause", "resume"):
            raise BadInput(what="a domain can be paused or resumed")
        if what == "pause":
            await operations.pause(store, operator.name, domain)
            text = f"{domain} is paused: what runs ends, nothing more is given out."
        else:
            await operations.resume(store, operator.name, domain)
            text = f"{domain} goes on."
        return page.done(request, text_of(form, "next") or "/domains", text)

    return router
