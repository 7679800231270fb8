"""`/media`: the newest refs as pictures; and `/media/entity`, the slots of one entity.

A filter is looked for among the newest refs, LOOK at a time: one that fits nothing costs one look, and the
page offers the next. An entity is found by its index.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Query, Request, Response

from actors.media.api.models import ENTITY, ID_MOST, INTEGER_MOST, split_entity
from actors.media.pages.shots import shot_of
from supervisor.api.v1.paging import BadCursor, Cursor, decode, encode
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.store import Record

PAGE: Final = 48
SLOTS: Final = 60
WRITES: Final = 20
LOOK: Final = 10_000
TEXT: Final = r"^[^\x00]*$"

Text = Annotated[str, Query(max_length=200, pattern=TEXT)]
Entity = Annotated[str, Query(max_length=401, pattern=ENTITY)]


def add_to(router: page.PageRouter, replica: ReplicaView, looks: str) -> None:
    store = replica.store

    @router.get("")
    async def show(
        request: Request,
        workspace: Text = "",
        entity: Annotated[str, Query(max_length=401, pattern=TEXT)] = "",
        before: Annotated[int | None, Query(ge=1, le=ID_MOST)] = None,
    ) -> Response:
        kind, colon, name = entity.partition(":")
        if colon and kind and name:
            return await show_entity(request, entity, workspace)
        rows = await store.rows("see_media", workspace or None, kind or None, before, PAGE, LOOK)
        is_full = len(rows) == PAGE
        reached = None if is_full else await store.value("see_media_reach", before, LOOK)
        return page.render(
            request,
            "media/gallery.html",
            now=await store.value("see_clock"),
            shots=[shot_of(row) for row in rows],
            workspace=workspace,
            entity=entity,
            is_first=before is None,
            reached=reached,
            older=_gallery_path(workspace, entity, rows[-1]["id"] if is_full else reached),
            looks=looks,
        )

    @router.get("/entity")
    async def show_entity(
        request: Request, entity: Entity, workspace: Text = "", cursor: Cursor = None
    ) -> Response:
        kind, name = split_entity(entity)
        behind = ("", -1, 0) if cursor is None else _slot_of(cursor)
        rows = await store.rows("see_entity_slots", workspace or None, kind, name, *behind, SLOTS + 1)
        shown = rows[:SLOTS]
        workspaces = [workspace] if workspace else sorted({row["workspace_id"] for row in shown})
        return page.render(
            request,
            "media/entity.html",
            now=await store.value("see_clock"),
            entity=entity,
            workspace=workspace,
            roles=_by_role(shown),
            writes=await store.rows("see_entity_writes", workspaces, kind, name, WRITES),
            is_first=cursor is None,
            older=_entity_path(entity, workspace, shown[-1]) if len(rows) > SLOTS else None,
            looks=looks,
        )


def _slot_of(cursor: str) -> tuple[str, int, int]:
    role, position, ref = decode(cursor, str, int, int)
    if position > INTEGER_MOST:
        raise BadCursor
    return role, position, ref


def _by_role(rows: Sequence[Record]) -> dict[str, list[Any]]:
    """Originals before what was made of them."""
    roles: dict[str, list[Any]] = {}
    for row in sorted(rows, key=lambda row: row["source_ref_id"] is not None):
        roles.setdefault(row["role"], []).append(shot_of(row))
    return roles


def _gallery_path(workspace: str, entity: str, before: int | None) -> str | None:
    if before is None:
        return None
    fields = {"workspace": workspace, "entity": entity, "before": str(before)}
    return f"/media?{urlencode({name: value for name, value in fields.items() if value})}"


def _entity_path(entity: str, workspace: str, last: Record) -> str:
    place = {"entity": entity, "cursor": encode(last["role"], last["position"], last["id"])}
    return f"/media/entity?{urlencode(place | ({'workspace': workspace} if workspace else {}))}"
