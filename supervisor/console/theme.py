"""Dark, light, or as the system says: kept in a cookie, so that it works without a script."""

from fastapi import Request, Response
from starlette.responses import RedirectResponse

from supervisor.api.origin import is_secure, local_path
from supervisor.api.view import ReplicaView
from supervisor.console.forms import Form, text_of
from supervisor.console.page import THEME_COOKIE, THEMES, PageRouter
from supervisor.errors import BadInput

YEAR_SECONDS = 365 * 86400


def routes(_replica: ReplicaView) -> PageRouter:
    router = PageRouter()

    @router.post("/theme")
    async def choose(request: Request, form: Form) -> Response:
        chosen = text_of(form, "theme")
        if chosen not in THEMES:
            raise BadInput(what=f"themes are {', '.join(THEMES)}")
        answer = RedirectResponse(local_path(text_of(form, "next")), 303)
        answer.set_cookie(
            THEME_COOKIE,
            chosen,
            max_age=YEAR_SECONDS,
            httponly=True,
            samesite="lax",
            secure=is_secure(request.url.scheme, request.headers),
        )
        return answer

    return router
