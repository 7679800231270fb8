"""A refusal as a person at a browser sees it."""

from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from supervisor.api.principal import NOBODY
from supervisor.api.problem import Problem

OF_THE_BODY: Final = frozenset({"content-type", "content-length"})


def shown(scope: Scope, answer: Response) -> Response:
    """The same refusal as a page of the console, where a page was asked for; else as it is."""
    if not isinstance(answer, Problem) or not wants_page(scope):
        return answer
    # the console's pages use parts of the API, and the API these
    from supervisor.console import page  # noqa: PLC0415

    scope.setdefault("state", {}).setdefault("principal", NOBODY)
    drawn = page.refuse(Request(scope), answer.status_code, answer.title, answer.detail)
    for name, value in answer.headers.items():
        if name not in OF_THE_BODY:
            drawn.headers.append(name, value)
    return drawn


def wants_page(scope: Scope) -> bool:
    """Not below /api/, where HTML is somebody's upload, nor for what brings a token: that is a program."""
    headers = Headers(scope=scope)
    return (
        "text/html" in headers.get("accept", "").lower()
        and "authorization" not in headers
        and not scope["path"].startswith("/api/")
    )
