"""`/capture/sessions/ID`: the pictures beside the entries, the versions of the day and their differences."""

from collections.abc import Mapping
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Query, Request, Response

from actors.capture.api.models import INTEGER
from actors.capture.pages.lines import FIELDS, Line, entries_of, lines_of, notes_of
from actors.capture.pages.sessions import KINDS
from actors.capture.views import NoSchedule, read_day, read_session
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.console.forms import Form, Operator, text_of
from supervisor.errors import BadInput
from supervisor.store import Record, Store

VERSIONS: Final = 20
REASON: Final = 500

Version = Annotated[int | None, Query(ge=1, le=INTEGER)]


def add_to(router: page.PageRouter, replica: ReplicaView, looks: str) -> None:
    store = replica.store

    @router.get("/sessions/{session_id}")
    async def show(
        request: Request, session_id: UUID, since: Version = None, before: Version = None
    ) -> Response:
        session = await read_session(store, session_id)
        versions = await _versions(store, session, before)
        lines, compared = await _lines(store, session, since)
        return page.render(
            request,
            "capture/session.html",
            now=await store.value("see_clock"),
            session=session,
            images=await store.rows("list_capture_images", session_id),
            fields=FIELDS,
            lines=lines,
            compared=compared,
            notes=notes_of(session["payload"]),
            versions=versions[:VERSIONS],
            next_before=versions[VERSIONS - 1]["version"] if len(versions) > VERSIONS else None,
            kinds=KINDS,
            looks=looks,
        )

    @router.post("/sessions/{session_id}")
    async def refuse(request: Request, session_id: UUID, form: Form, operator: Operator) -> Response:
        if text_of(form, "do") != "refuse":
            raise BadInput(what="a session can be refused")
        reason = text_of(form, "reason", most=REASON)
        if not reason or "\0" in reason:
            raise BadInput(what="say why the session is not to be read")
        await store.value("refuse_capture", operator.name, session_id, reason)
        return page.done(request, f"/capture/sessions/{session_id}", "It will not be read: refused.")


async def _versions(store: Store, session: Mapping[str, Any], before: int | None) -> list[Record]:
    if session["version"] is None:
        return []
    day = session["user_id"], session["schedule_date"]
    return list(await store.rows("list_schedule_versions", *day, before, VERSIONS + 1))


async def _lines(
    store: Store, session: Mapping[str, Any], since: int | None
) -> tuple[list[Line], int | None]:
    """Its entries, and the version they are compared with: the one that is named, else the one before it."""
    entries = entries_of(session["payload"])
    other = since or (session["version"] or 1) - 1
    if session["version"] is None or other < 1 or other == session["version"]:
        return lines_of(entries, None), None
    try:
        day = await read_day(store, session["user_id"], session["schedule_date"], other)
    except NoSchedule:
        if since is not None:
            raise
        return lines_of(entries, None), None
    return lines_of(entries, entries_of(day["payload"])), other
