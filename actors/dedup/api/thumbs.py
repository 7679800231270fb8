"""Thumbnails: asked for, looked at, removed by group."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Request, Response, status
from pydantic import BaseModel, ConfigDict, Field

from actors.dedup.api.cursors import parse_cleanup_key
from actors.dedup.api.models import Body, Dimension, RowId
from actors.dedup.api.refusals import Route, documented
from actors.dedup.api.thumb_content import content_answer
from actors.dedup.canvas import thumbs_dir
from supervisor.api.principal import Actor
from supervisor.api.view import ReplicaView
from supervisor.errors import Conflict, NotFound
from supervisor.store import Record

EXAMPLE_KEY: Final = "9f86d081884c7d65" * 4
EXAMPLE: Final[dict[str, Any]] = {
    "id": 3,
    "thumb_key": EXAMPLE_KEY,
    "file_id": 17,
    "group_key": f"blake3:{'4b227777d4dd1fc6' * 4}",
    "status": "ready",
    "media_type": "image",
    "format": "webp",
    "max_dimension": 256,
    "source_size": 1024,
    "source_mtime_ns": 1714557600000000000,
    "width": 256,
    "height": 192,
    "bytes_size": 8312,
    "error_code": None,
    "error_message": None,
    "error_count": 0,
    "retry_after": None,
    "worker_id": "node-1",
    "worker_heartbeat_at": "2026-01-31T12:00:01Z",
    "lease_expires_at": None,
    "created_at": "2026-01-31T12:00:00Z",
    "updated_at": "2026-01-31T12:00:02Z",
    "started_at": "2026-01-31T12:00:01Z",
    "finished_at": "2026-01-31T12:00:02Z",
    "content_url": f"/api/v1/thumbs/{EXAMPLE_KEY}/content",
}

ThumbKey = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", examples=[EXAMPLE_KEY])]


class ThumbRequest(Body):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"file_id": 17, "format": "webp"}}
    )

    file_id: RowId
    format: Literal["jpeg", "webp"] = "webp"
    max_dimension: Dimension = 256


class Thumb(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})

    id: int
    thumb_key: str
    file_id: int
    group_key: str
    status: Literal["pending", "running", "ready", "failed"]
    media_type: Literal["image", "video"]
    format: Literal["jpeg", "webp"]
    max_dimension: int
    source_size: int
    source_mtime_ns: int
    width: int | None
    height: int | None
    bytes_size: int | None
    error_code: str | None
    error_message: str | None
    error_count: int
    retry_after: datetime | None
    worker_id: str | None
    worker_heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    content_url: str | None = Field(description="null until it is ready")


class ThumbMetrics(BaseModel):
    generated_at: datetime
    queue_depth: int = Field(examples=[41])
    queue_pending: int = Field(examples=[39])
    queue_running: int = Field(examples=[2])
    capacity: int = Field(examples=[50000], description="setting dedup_thumbnail_capacity")
    retry_backlog: int = Field(examples=[1])
    retry_ready: int = Field(examples=[0])
    cleanup_pending: int = Field(examples=[0])
    cleanup_running: int = Field(examples=[0])
    cleanup_overdue: int = Field(examples=[0])
    cleanup_max_lag_seconds: float = Field(examples=[0])


class CleanupRequest(Body):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"group_key": EXAMPLE["group_key"], "delay_seconds": 60}},
    )

    group_key: str = Field(max_length=200)
    delay_seconds: Annotated[float, Field(strict=True, ge=0, le=31_536_000, allow_inf_nan=False)] | None = (
        Field(None, description="setting dedup_cleanup_delay_seconds when left out")
    )


class Cleanup(BaseModel):
    id: int
    group_key: str
    status: Literal["pending", "running", "completed", "failed"]
    requested_by: str
    execute_after: datetime
    error_code: str | None
    error_message: str | None
    worker_id: str | None
    worker_heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None


class Thumbs:
    def __init__(self, view: ReplicaView) -> None:
        self._store = view.store
        self._directory = thumbs_dir(view.settings)

    async def request(self, actor: Actor, asked: ThumbRequest, response: Response) -> Thumb:
        """202 while it is to be made; 200 when it is there. One that failed is the answer until its
        `retry_after`, and is queued again behind it."""
        wanted = (asked.file_id, asked.format, asked.max_dimension)
        row = await self._store.row("request_one_thumbnail", actor, *wanted)
        thumb = _thumb(row, "of that file")
        if thumb.status == "ready":
            response.status_code = status.HTTP_200_OK
        return thumb

    async def metrics(self) -> ThumbMetrics:
        row = await self._store.row("read_thumbnail_metrics")
        return ThumbMetrics.model_validate(dict(row or {}))

    async def read(self, key: ThumbKey) -> Thumb:
        return _thumb(await self._store.row("read_one_thumbnail", key), key)

    async def content(self, key: ThumbKey, request: Request) -> Response:
        """The picture itself. Its key names its content: it may be kept for ever."""
        row = await self._store.row("read_one_thumbnail", key)
        if row is None:
            raise NotFound(kind="thumbnail", name=key)
        return await content_answer(self._directory, row, request.headers.get("if-none-match"))

    async def clean_group(self, actor: Actor, asked: CleanupRequest) -> Cleanup:
        """Thumbnails of a group are removed after a delay, and nothing else; asked again, it is the same."""
        key = parse_cleanup_key(asked.group_key)
        row = await self._store.row("schedule_group_cleanup", actor, key, asked.delay_seconds)
        if row is None:
            raise Conflict(what="the cleanup of this group has just ended: ask again")
        return Cleanup.model_validate(dict(row))


def _thumb(row: Record | None, key: str) -> Thumb:
    if row is None:
        raise NotFound(kind="thumbnail", name=key)
    ready = row["status"] == "ready"
    url = f"/api/v1/thumbs/{row['thumb_key']}/content" if ready else None
    return Thumb.model_validate({**row, "content_url": url})


def routes(view: ReplicaView) -> APIRouter:
    thumbs, router = Thumbs(view), APIRouter(prefix="/thumbs", tags=["thumbnails"], route_class=Route)
    router.add_api_route(
        "/request",
        thumbs.request,
        methods=["POST"],
        status_code=status.HTTP_202_ACCEPTED,
        summary="Ask for a thumbnail",
        responses={200: {"model": Thumb, "description": "It is there"}, **documented(404, 429)},
    )
    router.add_api_route(
        "/cleanup/group",
        thumbs.clean_group,
        methods=["POST"],
        status_code=status.HTTP_202_ACCEPTED,
        summary="Remove the thumbnails of a group",
        responses=documented(409),
    )
    router.add_api_route(
        "/metrics", thumbs.metrics, methods=["GET"], summary="Count thumbnails", responses=documented()
    )
    router.add_api_route(
        "/{key}", thumbs.read, methods=["GET"], summary="Show a thumbnail", responses=documented(404)
    )
    picture = {"content": {"image/webp": {}, "image/jpeg": {}}, "description": "The picture"}
    for method in ("GET", "HEAD"):
        router.add_api_route(
            "/{key}/content",
            thumbs.content,
            methods=[method],
            include_in_schema=method == "GET",
            response_class=Response,
            summary="Get the picture",
            responses={200: picture, 304: {"description": "It is the one you have"}, **documented(404)},
        )
    return router
