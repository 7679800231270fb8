"""The way into the console and out of it: a token typed into a form, or a link, makes a session.

The session's cookie is new with each login and takes the place of the one before. It is sent by a browser to
this server only, from pages of this server only, and no script can read it.

A link (of `tenure open`) is used up by whoever follows it first. A browser that only fetches ahead, or a page
that loads it as a part of itself, does not use it up: it stays good for the person. All links of a server log
in as one principal, so by one nobody can be made to act as somebody else.
"""

from collections.abc import Awaitable
from html import escape
from typing import Any, Final, Protocol
from urllib.parse import quote

from fastapi import APIRouter, Request
from jinja2 import TemplateNotFound
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from supervisor.api.access import Access
from supervisor.api.credentials import COOKIE, Given
from supervisor.api.gate import LOGIN, LOGOUT, address_of
from supervisor.api.limiter import TooManyRefusals
from supervisor.api.origin import is_followed, is_secure, local_path
from supervisor.errors import TenureError

TOKEN_LENGTH: Final = 4096
USED: Final = "This link was used already, or is older than 15 minutes. Run `tenure open` for another."
KNOWN: Final = "This browser is logged in all the same: the console is at /."
UNUSED: Final = "This link logs in when it is opened by itself; it was not used up."
PLAIN: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in - Tenure</title></head><body><main>
<h1>Log in</h1>
{error}
<form method="post" action="/login">
<input type="hidden" name="next" value="{next}">
<p><label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus></p>
<p><button>Log in</button></p>
</form>
<p>A token is made by <code>tenure token create NAME --role view</code>; on this server's machine
<code>tenure open</code> prints a link that logs in.</p>
</main></body></html>
"""


class Render(Protocol):
    def __call__(self, request: Request, template: str, *, status: int, **context: Any) -> Response: ...


def routes(access: Access) -> APIRouter:
    login, router = Login(access), APIRouter(include_in_schema=False)
    router.add_api_route(LOGIN, login.show, methods=["GET"])
    router.add_api_route(LOGIN, login.log_in, methods=["POST"])
    router.add_api_route(LOGOUT, login.log_out, methods=["POST"])
    return router


class Login:
    def __init__(self, access: Access) -> None:
        self._access = access

    async def show(
        self,
        request: Request,
        next: str = "/",  # noqa: A002  as in the address
        again: str = "",
        code: str = "",
    ) -> Response:
        given, path = _given(request), local_path(next)
        if code:
            return await self._follow(request, code, path)
        if given.session is None and not again and request.headers.get("sec-fetch-site") == "cross-site":
            # A link from elsewhere: the browser keeps the cookie back. Asked again from here, it sends it.
            here = f"{LOGIN}?again=1&next={quote(path, safe='/')}"
            return _page(request, path, headers={"Refresh": f"0;url={here}"})
        if given.session is not None and await _is_known(self._access, given.session, request):
            return RedirectResponse(path, 303)
        return _page(request, path)

    async def log_in(self, request: Request) -> Response:
        form = await _form(request)
        token, path = _text(form, "token").strip(), local_path(_text(form, "next") or "/")
        if not 0 < len(token) <= TOKEN_LENGTH:
            return _page(request, path, 400, "Type a token.")
        opening = self._access.open_session(
            token.encode(errors="replace"), address_of(request.scope), _given(request).session
        )
        return await _enter(request, path, opening, "This token is wrong, expired or revoked.")

    async def _follow(self, request: Request, code: str, path: str) -> Response:
        if not is_followed(request.headers):
            return _page(request, path, 403, UNUSED)
        before = _given(request).session
        known = before is not None and await _is_known(self._access, before, request)
        opening = self._access.open_session_by_code(code, address_of(request.scope), before)
        return await _enter(request, path, opening, f"{USED} {KNOWN}" if known else USED)

    async def log_out(self, request: Request) -> Response:
        if (session := _given(request).session) is not None:
            await self._access.close_session(session)
        answer = RedirectResponse(LOGIN, 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer


async def _enter(request: Request, path: str, opening: Awaitable[bytes | None], refusal: str) -> Response:
    try:
        session = await opening
    except TooManyRefusals as error:
        wait = {"Retry-After": str(error.facts["seconds"])}
        return _page(request, path, 429, f"Refused: {error}; {error.advice}.", wait)
    except TenureError:
        return _page(request, path, 503, "The database does not answer; try again.")
    if session is None:
        return _page(request, path, 401, refusal, {"WWW-Authenticate": "Bearer"})
    answer = RedirectResponse(path, 303)
    secure = is_secure(request.scope["scheme"], request.headers)
    answer.set_cookie(COOKIE, session.decode(), httponly=True, samesite="strict", secure=secure)
    return answer


async def _is_known(access: Access, session: bytes, request: Request) -> bool:
    try:
        return await access.by_session(session, address_of(request.scope)) is not None
    except TenureError:  # the form is shown, and says why when it is sent
        return False


def _page(
    request: Request, path: str, status: int = 200, error: str = "", headers: dict[str, str] | None = None
) -> Response:
    # the console's pages use parts of the API, and the API these
    from supervisor.console import page  # noqa: PLC0415

    render: Render = page.render
    try:
        answer = render(request, "login.html", status=status, error=error, next=path)
    except TemplateNotFound:
        shown = f'<p role="alert">{escape(error)}</p>' if error else ""
        answer = HTMLResponse(PLAIN.format(error=shown, next=escape(path)), status)
    answer.headers.update(headers or {})
    return answer


async def _form(request: Request) -> FormData:
    try:
        return await request.form(max_files=0, max_fields=10)
    except (HTTPException, ValueError):
        return FormData()


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value if isinstance(value, str) else ""


def _given(request: Request) -> Given:
    given = request.scope["state"]["given"]
    assert isinstance(given, Given)  # noqa: S101  the gate's own
    return given
