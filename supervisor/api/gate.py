"""What every request passes, around all routes: who asks, what the role permits, size, and security headers.

A refusal is told before the body is read. Safe by default: a path is closed unless it stands here as open,
and a method that may change something needs the role `operate`, whatever its route says; a route can only ask
for more. What a browser sends by itself, a session's cookie, changes nothing unless it comes from a page of
ours.

Nobody is let in for being near, so no name in the Host header opens anything: a web page that points a name
of its own at this server comes without the cookie, which belongs to another name, and has no token to send.
"""

import traceback
import uuid
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.api.access import Access, Asking
from supervisor.api.connections import HEADER_BYTES
from supervisor.api.credentials import COOKIE, Ambiguous, Given, given_by
from supervisor.api.csrf import is_token, shown_token
from supervisor.api.headers import secure
from supervisor.api.origin import is_foreign
from supervisor.api.principal import NOBODY, Role, check_role
from supervisor.api.probes import PROBES
from supervisor.api.problem import Problem, problem, problem_of
from supervisor.api.refusal_page import shown
from supervisor.errors import OutcomeUnknown, TenureError
from supervisor.logs import logger
from supervisor.proxies import TrustedProxies

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
THEME: Final = "/theme"
STATIC: Final = "/static"
OWN: Final = frozenset({LOGOUT, THEME})
"""What changes nothing but the asking browser's cookies: every role may."""
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
BODY_BYTES: Final = 512 * 1024
LOGIN_BYTES: Final = 8 * 1024
LENGTH_DIGITS: Final = 18


class BodyTooLarge(Exception):
    """Raised out of `receive`, so that a body without a declared length is bounded too."""


class Refused(Exception):
    def __init__(self, answer: Response) -> None:
        self.answer = answer
        super().__init__(answer.status_code)


class Gate:
    """`body_bytes`: how much is read of what is posted to exactly these paths."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        body_bytes: Mapping[str, int] | None = None,
        proxies: TrustedProxies | None = None,
    ) -> None:
        self._app = app
        self._access = access
        self._proxies = proxies or TrustedProxies()
        self._body_bytes = {LOGIN: LOGIN_BYTES, **(body_bytes or {})}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = False

        async def send_secured(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                secure(MutableHeaders(scope=message), scope["path"])
            await send(message)

        most = self._most(scope["method"], scope["path"])
        answer: Response | None = None
        try:
            _check_head(scope, most)
            await self._app(scope, await self._admit(scope, _bounded(receive, most)), send_secured)
        except Refused as refused:
            answer = refused.answer
        except BodyTooLarge:
            answer = _too_large(most)
        except ClientDisconnect:
            return
        except TenureError as error:
            answer = _refusal_of(error)
        except Exception as error:  # noqa: BLE001  the edge: logged under an id, and the client gets the id only
            answer = _incident(scope["path"], error)
        if answer is not None and not started:
            await shown(scope, answer)(scope, receive, send_secured)

    def _most(self, method: str, path: str) -> int:
        """How large a body may be there."""
        return self._body_bytes.get(path, BODY_BYTES) if method == "POST" else BODY_BYTES

    async def _admit(self, scope: Scope, receive: Receive) -> Receive:
        """Sets who asks, or raises; the body may have been looked at, and is given back whole."""
        path, headers, state = scope["path"], Headers(scope=scope), scope.setdefault("state", {})
        state["principal"] = NOBODY
        if path in PROBES:
            return receive
        given, address = _given(scope), self._client_address(scope, headers)
        state["given"], state["address"] = given, address
        changes = scope["method"] not in SAFE_METHODS
        if path == LOGIN or _is_below(path, STATIC):
            if changes:
                _check_origin(headers)
            return receive
        state["was_right"] = self._access.was_right(given)
        asking = await self._access.who(given, address)
        if asking is None:
            raise Refused(_ask_who(scope, headers, given))
        state["principal"], state["form_token"] = asking.principal, asking.form_token

        async def still_valid() -> bool:
            return await self._access.is_still_known(given, address)

        state["still_valid"] = still_valid
        if changes:
            if path not in OWN:
                check_role(asking.principal, Role.OPERATE)
            return await _checked(scope, headers, asking, receive)
        return receive

    def _client_address(self, scope: Scope, headers: Headers) -> str:
        peer: str = scope["client"][0] if scope.get("client") else ""
        return self._proxies.client_of(peer, headers.getlist("x-forwarded-for"))


def address_of(scope: Scope) -> str:
    """Return the client's address: of the connection, or what a trusted proxy says of it."""
    address: str = scope["state"]["address"]
    return address


async def _checked(scope: Scope, headers: Headers, asking: Asking, receive: Receive) -> Receive:
    """A page of somebody else can make a browser send what it sends by itself, and nothing more."""
    if asking.by_hand:
        return receive
    _check_origin(headers)
    shown, receive = await shown_token(scope, receive)
    if not is_token(shown, asking.form_token):
        raise Refused(
            problem(
                403,
                "the form's token is missing or not this session's",
                "open the page again; a script sends X-CSRF-Token, or a bearer token and no cookie",
            )
        )
    return receive


def _check_origin(headers: Headers) -> None:
    if is_foreign(headers):
        raise Refused(problem(403, "sent from a page of another site", "use the console's own pages"))


def _given(scope: Scope) -> Given:
    try:
        return given_by(scope)
    except Ambiguous:
        raise Refused(problem(400, "more than one bearer token", "send one Authorization header")) from None


def _ask_who(scope: Scope, headers: Headers, given: Given) -> Response:
    """A person at a browser is sent to the login; everybody else is told."""
    answer: Response = problem(
        401,
        "a token is needed",
        "send it as `Authorization: Bearer ...`, or log in at /login",
        headers={"WWW-Authenticate": "Bearer"},
    )
    if scope["method"] == "GET" and given.bearer is None and "text/html" in headers.get("accept", "").lower():
        answer = RedirectResponse(f"{LOGIN}?next={quote(_asked(scope), safe='/')}", 303)
    if given.session is not None or given.stale_cookie:
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def _asked(scope: Scope) -> str:
    query = scope["query_string"].decode("ascii", "replace")
    return quote(scope["path"]) + (f"?{query}" if query else "")


def _check_head(scope: Scope, most: int) -> None:
    if _head_bytes(scope) > HEADER_BYTES:
        what, hint = "the request's head is too large", f"at most {HEADER_BYTES} bytes are read"
        raise Refused(problem(431, what, hint, headers={"Connection": "close"}))
    length = Headers(scope=scope).get("content-length", "0")
    if not length.isascii() or not length.isdigit() or len(length) > LENGTH_DIGITS or int(length) > most:
        raise BodyTooLarge


def _refusal_of(error: TenureError) -> Response:
    answer = problem_of(error, 503 if isinstance(error, OutcomeUnknown) else None)
    if answer.status_code == 429:
        answer.headers["Retry-After"] = str(error.facts.get("seconds", 1))
    return answer


def _incident(path: str, error: Exception) -> Response:
    """The traceback without the values of variables: they hold headers."""
    incident = uuid.uuid4().hex
    trace = "".join(traceback.format_exception(error))
    logger("api").error("request failed", incident=incident, path=path, exception=trace)
    detail = f"the log of the replica says more, under {incident}"
    return problem(500, "an unexpected error", detail, incident=incident)


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


def _too_large(most: int) -> Problem:
    return problem(413, "the body is too large", f"at most {most} bytes are read")


def _head_bytes(scope: Scope) -> int:
    """The server's own bound holds only for a head that arrives in pieces; one that comes at once passes."""
    target = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    return target + sum(len(name) + len(value) for name, value in scope["headers"])


def _bounded(receive: Receive, most: int) -> Receive:
    taken = 0

    async def receive_bounded() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > most:
            raise BodyTooLarge
        return message

    return receive_bounded
