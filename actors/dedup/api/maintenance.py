"""Checkpoints of the write-ahead log, on request."""

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Body, status
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from actors.dedup.api import models
from actors.dedup.api.models import Prose
from actors.dedup.api.refusals import Route, documented
from supervisor.api.principal import Actor
from supervisor.api.view import ReplicaView
from supervisor.errors import NotFound
from supervisor.store import Record, Store

EXAMPLE: Final[dict[str, Any]] = {
    "id": 5,
    "requested_mode": "passive",
    "status": "completed",
    "requested_by": "api",
    "reason": "before the backup",
    "execute_after": "2026-01-31T12:00:00Z",
    "retry_count": 0,
    "retry_after": None,
    "checkpoint_busy": 0,
    "checkpoint_log_frames": 812,
    "checkpointed_frames": 812,
    "error_code": None,
    "error_message": None,
    "worker_id": "node-1",
    "worker_heartbeat_at": "2026-01-31T12:00:01Z",
    "lease_expires_at": None,
    "created_at": "2026-01-31T12:00:00Z",
    "updated_at": "2026-01-31T12:00:02Z",
    "started_at": "2026-01-31T12:00:01Z",
    "finished_at": "2026-01-31T12:00:02Z",
}


def _in_our_time(at: datetime) -> datetime:
    """Neither the first nor the last year a calendar knows: they have no place in every time zone."""
    if not 2000 <= at.year <= 2200:
        raise ValueError("between the years 2000 and 2200")
    return at.astimezone(UTC)


class CheckpointRequest(models.Body):
    mode: Literal["passive", "restart", "truncate"] = "passive"
    reason: Prose = ""
    execute_after: Annotated[AwareDatetime, AfterValidator(_in_our_time)] | None = None


class Checkpoint(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})

    id: int
    requested_mode: Literal["passive", "restart", "truncate"]
    status: Literal["pending", "running", "retryable", "completed", "failed"]
    requested_by: str
    reason: str
    execute_after: datetime
    retry_count: int
    retry_after: datetime | None
    checkpoint_busy: int | None
    checkpoint_log_frames: int | None
    checkpointed_frames: int | None
    error_code: str | None
    error_message: str | None
    worker_id: str | None
    worker_heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class CheckpointMetrics(BaseModel):
    generated_at: datetime = Field(examples=["2026-01-31T12:00:00Z"])
    pending: int = Field(examples=[0])
    running: int = Field(examples=[0])
    retryable: int = Field(examples=[0])
    failed: int = Field(examples=[0])
    completed: int = Field(examples=[12])
    latest_completed_at: datetime | None = Field(examples=["2026-01-31T11:45:00Z"])


Asked = Annotated[
    CheckpointRequest, Body(openapi_examples={"usual": {"value": {"mode": "passive", "reason": "nightly"}}})
]


class Maintenance:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def request(self, actor: Actor, asked: Asked) -> Checkpoint:
        """At most one in `dedup_wal_interval_seconds`; `truncate` needs `dedup_allow_wal_truncate`."""
        row = await self._store.row(
            "request_wal_checkpoint", actor, asked.mode, asked.reason, asked.execute_after
        )
        return _checkpoint(row)

    async def latest(self) -> Checkpoint:
        """The one that was asked for last."""
        return _checkpoint(await self._store.row("read_latest_checkpoint"))

    async def metrics(self) -> CheckpointMetrics:
        row = await self._store.row("read_wal_metrics")
        return CheckpointMetrics.model_validate(dict(row or {}))


def _checkpoint(row: Record | None) -> Checkpoint:
    if row is None:
        raise NotFound(kind="checkpoint", name="has been asked for yet")
    return Checkpoint.model_validate(dict(row))


def routes(view: ReplicaView) -> APIRouter:
    maintenance = Maintenance(view.store)
    router = APIRouter(prefix="/maintenance/wal", tags=["maintenance"], route_class=Route)
    router.add_api_route(
        "/checkpoint",
        maintenance.request,
        methods=["POST"],
        status_code=status.HTTP_202_ACCEPTED,
        summary="Ask for a checkpoint",
        responses=documented(409, 429),
    )
    router.add_api_route(
        "/checkpoint/latest",
        maintenance.latest,
        methods=["GET"],
        summary="Show the latest checkpoint",
        responses=documented(404),
    )
    router.add_api_route(
        "/metrics", maintenance.metrics, methods=["GET"], summary="Count checkpoints", responses=documented()
    )
    return router
