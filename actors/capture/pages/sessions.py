"""`/capture/sessions`: what was submitted, newest first.

A state is looked for among the newest sessions, LOOK at a time: one that fits nothing costs one look, and the
page offers the next. The sessions of a user are found by their index.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Query, Request, Response

from actors.capture.api.models import BIGINT
from supervisor.api.v1.paging import Cursor, decode, encode
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.errors import BadInput
from supervisor.store import Record, Store

PAGE: Final = 50
LOOK: Final = 10_000
STATES: Final = ("pending", "processing", "done", "failed")
KINDS: Final[Mapping[str, str]] = {
    "pending": "PENDING",
    "processing": "RUNNING",
    "done": "SUCCEEDED",
    "failed": "FAILED",
}
"""The console's states, by those of the tables."""


def add_to(router: page.PageRouter, replica: ReplicaView, looks: str) -> None:
    store = replica.store

    @router.get("/sessions")
    async def list_sessions(
        request: Request,
        state: Literal["", "pending", "processing", "done", "failed"] = "",
        user: Annotated[str, Query(max_length=20)] = "",
        cursor: Cursor = None,
    ) -> Response:
        number = user_of(user)
        behind = (None, None) if cursor is None else decode(cursor, datetime, UUID)
        rows = await _read(store, state, number, behind)
        shown = rows[:PAGE]
        is_full = len(rows) > PAGE
        reached = None if is_full else await _reach(store, number, behind)
        last = shown[-1] if is_full else reached
        place = None if last is None else encode(last["created_at"], last["id"])
        return page.render(
            request,
            "capture/sessions.html",
            now=await store.value("see_clock"),
            sessions=shown,
            state=state,
            states=STATES,
            user=user,
            is_first=cursor is None,
            reached=reached,
            older=None if place is None else _path(state, user, place),
            kinds=KINDS,
            looks=looks,
        )


def user_of(text: str) -> int | None:
    if not text.strip():
        return None
    try:
        number = int(text)
    except ValueError:
        number = BIGINT + 1
    if not text.isascii() or not -BIGINT <= number <= BIGINT:
        raise BadInput(what="a user is a number")
    return number


async def _read(store: Store, state: str, user: int | None, behind: tuple[Any, ...]) -> Sequence[Record]:
    asked = (state or None, *behind, PAGE + 1, LOOK)
    if user is None:
        return await store.rows("see_captures", *asked)
    return await store.rows("see_user_captures", *asked, user)


async def _reach(store: Store, user: int | None, behind: tuple[Any, ...]) -> Record | None:
    """How far was looked for a page that is not full."""
    if user is None:
        return await store.row("see_capture_reach", *behind, LOOK)
    return await store.row("see_user_capture_reach", *behind, LOOK, user)


def _path(state: str, user: str, cursor: str) -> str:
    fields = {"state": state, "user": user, "cursor": cursor}
    return f"/capture/sessions?{urlencode({name: value for name, value in fields.items() if value})}"
