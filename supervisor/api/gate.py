"""What every request passes, around all routes: token, size, security headers, and no traceback to anybody.

A refusal is told before the body is read. Without a token the server is on loopback, and there the Host
header must name loopback: otherwise a web page could reach it through a name that it points at 127.0.0.1.
"""

import hmac
import uuid
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.api.problem import problem
from supervisor.api.server import HEADER_BYTES, is_loopback
from supervisor.logs import logger

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
BODY_BYTES: Final = 512 * 1024
SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class BodyTooLarge(Exception):
    """Raised out of `receive`, so that a body without a declared length is bounded too."""


class Gate:
    def __init__(self, app: ASGIApp, token: SecretStr | None) -> None:
        self._app = app
        self._token = token.get_secret_value().encode() if token else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = False

        async def send_secured(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope)
        if answer is None:
            try:
                await self._app(scope, _bounded(receive), send_secured)
            except BodyTooLarge:
                answer = problem(413, "the body is too large", f"at most {BODY_BYTES} bytes are read")
            except Exception as error:  # noqa: BLE001  the edge: logged under an id, and the client gets the id only
                incident = uuid.uuid4().hex
                logger("api").error("request failed", incident=incident, path=scope["path"], exc_info=error)
                answer = problem(
                    500, "an unexpected error", "the log of the replica says more", incident=incident
                )
        if answer is not None and not started:
            await answer(scope, receive, send_secured)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        if _head_bytes(scope) > HEADER_BYTES:
            return problem(431, "the request's head is too large", f"at most {HEADER_BYTES} bytes are read")
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > BODY_BYTES:
            return problem(413, "the body is too large", f"at most {BODY_BYTES} bytes are read")
        if scope["path"] in OPEN_PATHS:
            return None
        if self._token is None:
            if not _names_loopback(headers.get("host", "")):
                return problem(
                    421, "not for this host", "without a token, only requests to loopback are answered"
                )
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token):
            return None
        return problem(
            401,
            "a token is needed",
            "send it as `Authorization: Bearer ...`",
            headers={"WWW-Authenticate": "Bearer"},
        )


def _head_bytes(scope: Scope) -> int:
    """The server's own bound holds only for a head that arrives in pieces; one that comes at once passes."""
    target = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    return target + sum(len(name) + len(value) for name, value in scope["headers"])


def _names_loopback(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def _bounded(receive: Receive) -> Receive:
    taken = 0

    async def receive_bounded() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > BODY_BYTES:
            raise BodyTooLarge
        return message

    return receive_bounded
