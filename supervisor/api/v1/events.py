"""Events: what happened elsewhere, and how many runs came of it."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from supervisor import operations
from supervisor.api.principal import Actor, Role
from supervisor.api.v1.paging import BIGINT, SCAN_ROWS, Cursor, Limit, Page, decode, encode, page
from supervisor.api.v1.route import TEXT, Asked, Filter, Hanger, Key, answer
from supervisor.api.view import ReplicaView
from supervisor.sight import Raw
from supervisor.store import Store


class Event(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": 12,
                "type": "order.paid",
                "dedupe_key": "order-4711",
                "payload": {"order": 4711},
                "created_at": "2026-01-31T01:30:00+00:00",
                "processed_at": "2026-01-31T01:30:00.2+00:00",
                "runs": 1,
            }
        }
    )

    id: int
    type: str
    dedupe_key: str | None
    payload: dict[str, Any]
    created_at: datetime
    processed_at: datetime | None = Field(description="null until the leader has looked at it")
    runs: int | None = Field(description="how many jobs waited for it")


class EventAsked(Asked):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {"type": "order.paid", "dedupe_key": "order-4711", "payload": {"order": 4711}}
        }
    )

    type: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=TEXT)]
    payload: dict[str, Any] | None = None
    dedupe_key: Key | None = Field(None, description="the same key again is the same event")


class EmittedAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": {"id": 12, "created": True}})

    id: int
    created: bool = Field(description="false where the key was emitted before")


class Events:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_events(self, limit: Limit = 50, cursor: Cursor = None, type: Filter = None) -> Response:  # noqa: A002  the name people see
        """Newest first. A type that is rare is looked for page by page: such a page can be short, or empty,
        and has a `next` all the same."""
        before = decode(cursor, int)[0] if cursor is not None else BIGINT
        rows = await self._store.rows("list_events_page", before, limit + 1, SCAN_ROWS, type)
        shown = page(
            [{**row, "payload": Raw(row["payload"])} for row in rows], limit, lambda row: encode(row["id"])
        )
        if shown["next"] is None and type is not None:
            end = await self._store.value("find_events_end", before, SCAN_ROWS)
            shown["next"] = encode(end) if end is not None else None
        return answer(shown)

    async def emit_event(self, asked: EventAsked, who: Actor) -> Response:
        """Jobs that wait for its type get a run each: 201, or 200 where the key was emitted before."""
        made = await operations.emit(self._store, who, asked.type, asked.payload, asked.dedupe_key)
        return answer(made, 201 if made.created else 200)


def routes(replica: ReplicaView) -> APIRouter:
    events, hanger = Events(replica.store), Hanger("events")
    made: Any = {201: {"model": EmittedAnswer, "description": "The event is new"}}
    hanger.add("GET", "/events", events.list_events, Page[Event], "List events", 400)
    hanger.add("POST", "/events", events.emit_event, EmittedAnswer, "Emit an event",
               400, role=Role.OPERATE, more=made)  # fmt: skip
    return hanger.router
