"""Sessions: submitted, looked at, refused; and their pictures."""

import hashlib
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request, Response, status
from fastapi.responses import JSONResponse

from actors.capture.api import form
from actors.capture.api.models import BIGINT, INTEGER, Refusal, Session, SessionPage, State
from actors.capture.api.refusals import Route, documented
from actors.capture.submit import submit
from actors.capture.views import read_session
from supervisor.api.content import answer_content
from supervisor.api.principal import principal_of
from supervisor.api.v1.paging import Cursor, Limit, decode, encode, page
from supervisor.api.view import ReplicaView
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.errors import NotFound
from supervisor.images.sniff import HEAD_BYTES, sniff


class Sessions:
    def __init__(self, view: ReplicaView) -> None:
        self._store = view.store
        self._artifacts = open_artifacts(load_artifact_settings(), view.settings.state_dir)

    async def add(self, request: Request) -> Response:
        """Pictures of one schedule, taken together. They are read by whichever replica is free; ask for the
        session again to see what came of it."""
        policy = await self._store.row("read_capture_policy")
        assert policy is not None  # noqa: S101  an aggregate: one row, always
        async with form.read_submission(request, policy["max_images"] * policy["max_bytes"]) as asked:
            session, created = await submit(
                self._store,
                self._artifacts,
                principal_of(request).name,
                asked.fields.user,
                asked.pictures,
                asked.fields.session_id,
            )
        shown = Session(**await read_session(self._store, session))
        code = status.HTTP_201_CREATED if created else status.HTTP_200_OK
        return JSONResponse(shown.model_dump(mode="json"), code)

    async def find(
        self,
        user: Annotated[int | None, Query(ge=-BIGINT, le=BIGINT)] = None,
        state: State | None = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> dict[str, Any]:
        """Newest first."""
        after = decode(cursor, datetime, UUID) if cursor is not None else (None, None)
        rows = await self._store.rows("list_captures", user, state, *after, limit + 1)
        return page(
            [dict(row) for row in rows], limit, lambda row: encode(row["created_at"], row["session_id"])
        )

    async def show(self, session_id: UUID) -> dict[str, Any]:
        """What came of it: its state, why it failed, or the version that it made."""
        return await read_session(self._store, session_id)

    async def refuse(self, session_id: UUID, asked: Refusal, request: Request) -> dict[str, Any]:
        """Say that a session that still waits is not to be read. There is no way back: submit it anew."""
        await self._store.value("refuse_capture", principal_of(request).name, session_id, asked.reason)
        return await read_session(self._store, session_id)

    async def picture(
        self, session_id: UUID, sequence: Annotated[int, Path(ge=1, le=INTEGER)], request: Request
    ) -> Response:
        """One picture, as it was submitted."""
        rows = await self._store.rows("list_capture_images", session_id)
        found = next((row for row in rows if row["sequence"] == sequence), None)
        if found is None:
            raise NotFound(kind="capture", name=f"picture {sequence} of session {session_id}")
        key = found["r2_key"]
        async with self._artifacts.open(key, length=HEAD_BYTES) as pieces:
            head = b"".join([piece async for piece in pieces])
        blob = {
            "mime_type": f"image/{sniff(head) or 'octet-stream'}",
            "file_hash": found["sha256"] or hashlib.sha256(key.encode()).hexdigest(),
            "file_size": found["size_bytes"] or (await self._artifacts.stat(key)).size,
            "storage_key": key,
        }
        return answer_content(self._artifacts, blob, request.headers, request.method)


def routes(view: ReplicaView) -> APIRouter:
    sessions, router = Sessions(view), APIRouter(prefix="/capture/sessions", route_class=Route)
    router.add_api_route(
        "",
        sessions.add,
        methods=["POST"],
        status_code=status.HTTP_201_CREATED,
        response_model=Session,
        summary="Submit pictures of a schedule",
        openapi_extra=form.SCHEMA,
        responses={200: {"model": Session, "description": "It was submitted before"}, **documented(409, 507)},
    )
    router.add_api_route(
        "",
        sessions.find,
        methods=["GET"],
        response_model=SessionPage,
        summary="List sessions",
        responses=documented(),
    )
    router.add_api_route(
        "/{session_id}",
        sessions.show,
        methods=["GET"],
        response_model=Session,
        summary="Show a session",
        responses=documented(404),
    )
    router.add_api_route(
        "/{session_id}/refuse",
        sessions.refuse,
        methods=["POST"],
        response_model=Session,
        summary="Refuse a session that waits",
        responses=documented(404, 409),
    )
    router.add_api_route(
        "/{session_id}/images/{sequence}",
        sessions.picture,
        methods=["GET"],
        response_class=Response,
        summary="Get a picture",
        responses={200: {"description": "The picture", "content": {"image/*": {}}}, **documented(404)},
    )
    return router
