"""The token of a form: what shows that a change by a session was asked for on a page of ours.

The gate compares it before any route is reached: in the header X-CSRF-Token, or in the field `csrf` of the
form. To see the field it reads the whole body, at most FORM_BYTES, and hands it on; a larger upload by a
session brings the header.
"""

import hmac
from collections.abc import AsyncIterator
from typing import Final

from starlette.datastructures import FormData, Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope

from supervisor.errors import BadInput

FIELD: Final = "csrf"
HEADER: Final = "x-csrf-token"
FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")
FORM_BYTES: Final = 512 * 1024
FIELDS: Final = 2000


def csrf_of(request: Request) -> str:
    """What a template puts into its forms; nothing where no session asks."""
    token: str = request.scope["state"].get("form_token", "")
    return token


async def checked_form(request: Request) -> AsyncIterator[FormData]:
    """The form of a page of ours, for `Depends`: its origin and its token were the gate's business."""
    try:
        form = await request.form(max_fields=FIELDS)
    except ValueError:
        raise BadInput(what="the form cannot be read") from None
    try:
        yield form
    finally:
        await form.close()


async def shown_token(scope: Scope, receive: Receive) -> tuple[str, Receive]:
    """The token that the request shows, and its body once more."""
    headers = Headers(scope=scope)
    if (given := headers.get(HEADER)) is not None:
        return given, receive
    if headers.get("content-type", "").partition(";")[0].strip().lower() not in FORMS:
        return "", receive
    body = await _whole(receive)
    return ("", receive) if body is None else (await _field(scope, body), _again(body, receive))


def is_token(shown: str, expected: str) -> bool:
    return bool(expected) and hmac.compare_digest(shown.encode(), expected.encode())


async def _whole(receive: Receive) -> bytes | None:
    """None = more than a form may have."""
    body = bytearray()
    while len(body) <= FORM_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)
    return None


async def _field(scope: Scope, body: bytes) -> str:
    async def nothing() -> Message:
        return {"type": "http.disconnect"}

    try:
        async with Request(scope, _again(body, nothing)).form(max_fields=FIELDS) as form:
            shown = form.get(FIELD)
    except (HTTPException, ValueError):  # no form, whatever it says it is
        return ""
    return shown if isinstance(shown, str) else ""


def _again(body: bytes, after: Receive) -> Receive:
    told = False

    async def receive() -> Message:
        nonlocal told
        if told:
            return await after()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
