"""`/media/blobs/HASH`: a content and who uses it; `/media/requests/ID`: the story of a write."""

from typing import Any, Final
from uuid import UUID

from fastapi import Request, Response

from actors.media.api.models import PathHash
from actors.media.pages.shots import content_path, is_drawn
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.errors import BadInput, NotFound
from supervisor.store import Record
from supervisor.stored_json import readable

REFS: Final = 100
WRITES: Final = 20


class NoRequest(NotFound):
    """no write was asked for under {name}"""

    hint = "the page of an entity or of a content lists the writes that named it"


class NoBlob(NotFound):
    """no content {name}"""

    hint = "it was never here, or was collected; `tenure media show HASH` asks the same"


def add_to(router: page.PageRouter, replica: ReplicaView, looks: str) -> None:
    store = replica.store

    @router.get("/blobs/{hash_}")
    async def show_blob(request: Request, hash_: PathHash) -> Response:
        blob = await store.row("read_blob", hash_)
        if blob is None:
            raise NoBlob(kind="blob", name=hash_)
        refs = await store.rows("list_blob_refs", hash_, REFS + 1)
        return page.render(
            request,
            "media/blob.html",
            now=await store.value("see_clock"),
            blob=blob,
            content=content_path(hash_),
            is_drawn=is_drawn(blob["mime_type"], blob["file_size"]),
            refs=refs[:REFS],
            more_refs=len(refs) > REFS,
            writes=await store.rows("see_blob_writes", hash_, WRITES),
            looks=looks,
        )

    @router.get("/requests")
    async def find(request: Request, id: str = "") -> Response:  # noqa: A002  the name of the form's field
        try:
            wanted = UUID(id.strip())
        except ValueError:
            raise BadInput(what="the id of a write is a UUID") from None
        return await show_request(request, wanted)

    @router.get("/requests/{request_id}")
    async def show_request(request: Request, request_id: UUID) -> Response:
        rows = await store.rows("list_request_events", request_id)
        if not rows:
            raise NoRequest(kind="request", name=request_id)
        return page.render(
            request,
            "media/story.html",
            now=await store.value("see_clock"),
            request_id=request_id,
            events=[_told(row) for row in rows],
            first=rows[0],
            decision=next((row["decision"] for row in rows if row["decision"]), None),
            result=next((row["result"] for row in rows if row["result"]), None),
        )


def _told(row: Record) -> dict[str, Any]:
    payload = readable(row["payload"])
    return {**row, "payload": payload, "what": _what(row, payload if isinstance(payload, dict) else {})}


def _what(row: Record, payload: dict[str, Any]) -> str:
    """An event in a few words."""
    if row["decision"] or row["result"]:
        return str(row["result"] or row["decision"])
    asked = payload.get("asked")
    words = [payload.get("action"), payload.get("target_table")]
    if isinstance(asked, dict):
        words.append(asked.get("action"))
    return " ".join(str(word) for word in words if word)
