"""Contents: uploaded, described, and sent out."""

from typing import Any
from uuid import uuid4

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request, Response, status
from fastapi.responses import JSONResponse

from actors.media import write
from actors.media.api import form
from actors.media.api.models import PathHash, Stored, split_entity, writer_of, written
from actors.media.api.refusals import Route, documented, refusal
from actors.media.content import Content, examine
from actors.media.upload import upload
from supervisor.api.content import answer_content
from supervisor.api.principal import Principal, principal_of
from supervisor.api.view import ReplicaView
from supervisor.artifacts import Artifacts
from supervisor.errors import NotFound


class Blobs:
    def __init__(self, view: ReplicaView, artifacts: Artifacts) -> None:
        self._store = view.store
        self._artifacts = artifacts

    async def add(self, request: Request) -> Response:
        """One file, and where it belongs. Its type is read from its bytes; the same content is kept once.
        Without workspace, entity and role it is only kept, until the collection finds it unused."""
        limit = await self._store.value("read_media_limit")
        async with form.read_upload(request, limit) as received:
            content = await run_sync(examine, received.file, limit)
            content.expect(received.fields.expected_hash, received.fields.expected_size)
            wish = _wish(received.fields, principal_of(request))
            answer = await upload(
                self._artifacts, content, lambda facts: write.write(self._store, wish, facts)
            )
        if not answer.is_ok:
            return refusal(answer)
        stored = Stored(**written(answer), **_described(content))
        code = status.HTTP_201_CREATED if answer.result == "OK_INSERTED" else status.HTTP_200_OK
        return JSONResponse(stored.model_dump(mode="json"), code)

    async def content(self, hash_: PathHash, request: Request) -> Response:
        """The content itself, or one range of it. Its hash names it: it may be kept for ever."""
        blob = await self._store.row("read_blob", hash_)
        if blob is None:
            raise NotFound(kind="blob", name=hash_)
        return answer_content(self._artifacts, dict(blob), request.headers, request.method)


def _wish(fields: form.Fields, asking: Principal) -> write.Request:
    request_id, by = fields.request_id or uuid4(), writer_of(asking, fields.actor)
    if fields.workspace is None or fields.entity is None:
        return write.Request(request_id, "store", by)
    kind, name = split_entity(fields.entity)
    slot = write.Slot(fields.workspace, kind, name, fields.role, fields.position)
    on_occupied: write.OnOccupied = "reject" if fields.on_occupied == "reject" else "replace"
    return write.Request(request_id, "attach", by, slot, on_occupied=on_occupied)


def _described(content: Content) -> dict[str, Any]:
    return {
        "mime_type": content.mime_type,
        "file_size": content.size,
        "content_url": f"/api/v1/media/blobs/{content.hash}",
    }


def routes(view: ReplicaView, artifacts: Artifacts) -> APIRouter:
    blobs, router = Blobs(view, artifacts), APIRouter(prefix="/blobs", route_class=Route)
    router.add_api_route(
        "",
        blobs.add,
        methods=["POST"],
        status_code=status.HTTP_201_CREATED,
        response_model=Stored,
        summary="Upload a content, and attach it where a slot is given",
        openapi_extra=form.SCHEMA,
        responses={
            200: {"model": Stored, "description": "It was there already, or took the place of another"},
            **documented(403, 404, 409, 415, 500, 507),
        },
    )
    answers: dict[int | str, dict[str, Any]] = {
        200: {"description": "All of it", "content": {"*/*": {}}},
        206: {"description": "The range that was asked for", "content": {"*/*": {}}},
        304: {"description": "It is the one you have"},
        416: {"description": "No byte of it is in that range"},
        **documented(404),
    }
    for method in ("GET", "HEAD"):
        router.add_api_route(
            "/{hash_}",
            blobs.content,
            methods=[method],
            include_in_schema=method == "GET",
            response_class=Response,
            summary="Get a content",
            responses=answers,
        )
    return router
