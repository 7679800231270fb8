"""An address that is none of ours, for a person at a browser: a page instead of a problem as JSON.

It comes after every other page, and is a match only for what a browser looks at. The API, and whoever does
not ask for a page, get what they get without it.
"""

from typing import Final

from fastapi import Request, Response
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Scope

from supervisor.api.view import ReplicaView
from supervisor.console import page

API: Final = "/api"


class NowhereRoute(page.PageRoute):
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if is_look(scope) else (Match.NONE, {})


def is_look(scope: Scope) -> bool:
    """A path with a slash at its end is left to the server, which knows those that have none."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return False
    path: str = scope["path"]
    inside = path == API or path.startswith(f"{API}/")
    return not inside and not path.endswith("/") and "text/html" in Headers(scope=scope).get("accept", "")


def routes(_replica: ReplicaView) -> page.PageRouter:
    router = page.PageRouter()
    router.route_class = NowhereRoute

    @router.get("/{path:path}")
    async def nowhere(request: Request) -> Response:
        return page.refuse(request, 404, "there is no such page", "choose one on the side")

    return router
