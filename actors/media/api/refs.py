"""Refs: who uses which content, and where."""

import re
from typing import Annotated, Final
from uuid import UUID, uuid4

from fastapi import APIRouter, Query, Response, status
from fastapi.responses import JSONResponse

from actors.media import write
from actors.media.api.models import (
    ID_MOST,
    INTEGER_MOST,
    ON_BEHALF_OF,
    Asking,
    Attach,
    Move,
    PathRef,
    QueryEntity,
    QueryName,
    Ref,
    RefPage,
    Written,
    split_entity,
    writer_of,
    written,
)
from actors.media.api.refusals import Route, documented, refusal
from supervisor.api.view import ReplicaView
from supervisor.errors import BadInput, NotFound

OnBehalfOf = Annotated[
    str | None, Query(min_length=1, max_length=200, pattern=r"^[^\x00]+$", description=ON_BEHALF_OF)
]
CURSOR: Final = re.compile(r"(.{1,200}):(0|[1-9]\d{0,9}):([1-9]\d{0,18})", re.DOTALL)


class BadCursor(BadInput):
    """this cursor is none of ours"""

    code = "INVALID_CURSOR"


class Refs:
    def __init__(self, view: ReplicaView) -> None:
        self._store = view.store

    async def attach(self, asking: Asking, asked: Attach) -> Response:
        """Put a content that is there already into a slot. An empty slot takes it; the same content in it
        already is answered with its ref; another one gives way, unless `on_occupied` says `reject`.
        `replace` insists that there is one to give way."""
        kind, name = split_entity(asked.entity)
        return await self._answer(
            write.Request(
                asked.request_id or uuid4(),
                asked.action,
                writer_of(asking, asked.actor),
                write.Slot(asked.workspace, kind, name, asked.role, asked.position),
                asked.expected_ref_id,
                {"hash": asked.blob_hash},
                asked.on_occupied,
            )
        )

    async def move(self, asking: Asking, asked: Move) -> Response:
        """Give a ref another slot of its workspace. Where one stands there the two change places."""
        kind, name = split_entity(asked.entity) if asked.entity is not None else (None, None)
        slot = write.Slot(None, kind, name, asked.role, asked.position)
        wish = write.Request(
            asked.request_id or uuid4(),
            "move",
            writer_of(asking, asked.actor),
            slot,
            asked.ref_id,
            on_occupied=asked.on_occupied,
        )
        return await self._answer(wish)

    async def detach(
        self,
        asking: Asking,
        ref_id: PathRef,
        request_id: UUID | None = None,
        actor: OnBehalfOf = None,
    ) -> Response:
        """End this ref, and nothing else: its content stays, and so does every other ref."""
        by = writer_of(asking, actor)
        return await self._answer(write.Request(request_id or uuid4(), "detach", by, ref=ref_id))

    async def _answer(self, wish: write.Request) -> Response:
        answer = await write.write(self._store, wish)
        if not answer.is_ok:
            return refusal(answer)
        code = status.HTTP_201_CREATED if answer.result == "OK_INSERTED" else status.HTTP_200_OK
        return JSONResponse(Written(**written(answer)).model_dump(mode="json"), code)

    async def read(self, ref_id: PathRef) -> Ref:
        """Ended ones too, until they are purged."""
        row = await self._store.row("read_ref", ref_id)
        if row is None:
            raise NotFound(kind="ref", name=ref_id)
        return Ref.model_validate(dict(row))

    async def list(
        self,
        entity: QueryEntity,
        workspace: QueryName | None = None,
        role: QueryName | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: str | None = None,
    ) -> RefPage:
        """The active refs of an entity, by role and position; without a workspace, of all of them."""
        after = _parsed(cursor)
        rows = await self._store.rows("list_refs", workspace, *split_entity(entity), role, *after, limit + 1)
        shown = [Ref.model_validate(dict(row)) for row in rows[:limit]]
        last = shown[-1] if len(rows) > limit else None
        return RefPage(items=shown, next_cursor=last and f"{last.role}:{last.position}:{last.id}")


def _parsed(cursor: str | None) -> tuple[str, int, int]:
    """Behind which role, position and ref."""
    if cursor is None:
        return "", -1, 0
    found = CURSOR.fullmatch(cursor)
    if found is None or int(found[2]) > INTEGER_MOST or int(found[3]) > ID_MOST or "\0" in cursor:
        raise BadCursor
    return found[1], int(found[2]), int(found[3])


def routes(view: ReplicaView) -> APIRouter:
    refs, router = Refs(view), APIRouter(prefix="/refs", route_class=Route)
    writes = documented(403, 404, 409, 415, 500)
    router.add_api_route(
        "",
        refs.attach,
        methods=["POST"],
        status_code=status.HTTP_201_CREATED,
        response_model=Written,
        summary="Attach a content",
        responses={200: {"model": Written, "description": "It was there, or replaced another"}, **writes},
    )
    router.add_api_route(
        "/move",
        refs.move,
        methods=["POST"],
        response_model=Written,
        summary="Move a ref, or let two change places",
        responses=writes,
    )
    router.add_api_route(
        "/{ref_id}",
        refs.detach,
        methods=["DELETE"],
        response_model=Written,
        summary="Detach a ref",
        responses=writes,
    )
    router.add_api_route(
        "", refs.list, methods=["GET"], summary="List the refs of an entity", responses=documented()
    )
    router.add_api_route(
        "/{ref_id}", refs.read, methods=["GET"], summary="Show a ref", responses=documented(404)
    )
    return router
