"""`/settings`: what all replicas share in the database, and what this replica was started with."""

import json

from fastapi import Request, Response

from supervisor import operations
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.console.forms import Admin, Form, text_of
from supervisor.errors import BadInput
from supervisor.setting import bounds


def routes(replica: ReplicaView) -> page.PageRouter:
    router = page.PageRouter()

    @router.get("/settings")
    async def show(request: Request) -> Response:
        return page.render(
            request,
            "settings.html",
            now=await replica.store.value("see_clock"),
            settings=[(row, bounds(dict(row))) for row in await replica.store.rows("see_settings")],
            timings=replica.settings.timings,
            slots=replica.settings.slots,
        )

    @router.post("/settings")
    async def save(request: Request, form: Form, admin: Admin) -> Response:
        name, wanted = text_of(form, "name"), parse(text_of(form, "value"))
        saved = await operations.set_setting(replica.store, admin.name, name, wanted)
        text = f"{name} is now {json.dumps(saved.value)}; it was {json.dumps(saved.was)}."
        return page.done(request, "/settings", text)

    return router


def parse(text: str) -> float | bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, (bool, int, float)):
        return value
    raise BadInput(what="a setting is a number, or true or false")
