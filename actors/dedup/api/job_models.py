"""Jobs as they are asked for and shown."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from actors.dedup.api.models import Body, Dimension, Flag, Name, Page, RowId
from supervisor.stored_json import readable

Kind = Literal["scan", "hash", "delete", "thumbnail"]
Status = Literal["pending", "running", "completed", "failed", "cancelled", "retryable"]


def _loaded(value: Any) -> Any:
    return readable(value) if isinstance(value, str) else value


class ScanOptions(Body):
    allow_empty: Flag | None = Field(None, description="a library without files is no mistake")


class HashOptions(Body):
    algorithm: Literal["blake3", "sha256"] | None = None
    mode: Literal["all", "duplicates"] | None = Field(
        None, description="duplicates: only where sizes are equal"
    )


class ThumbnailOptions(Body):
    format: Literal["jpeg", "webp"] | None = None
    max_dimension: Dimension | None = None


class ScanRequest(Body):
    kind: Literal["scan"]
    library: Name
    payload: ScanOptions = Field(default_factory=ScanOptions)
    dry_run: Flag = True


class HashRequest(Body):
    kind: Literal["hash"]
    library: Name | None = Field(None, description="all of them when left out")
    payload: HashOptions = Field(default_factory=HashOptions)
    dry_run: Flag = True


class ThumbnailRequest(Body):
    kind: Literal["thumbnail"]
    library: Name
    payload: ThumbnailOptions = Field(default_factory=ThumbnailOptions)
    dry_run: Flag = True


class DeleteRequest(Body):
    kind: Literal["delete"]
    group_key: str = Field(max_length=200)
    keep: RowId | None = Field(None, description="the file that stays; the oldest when left out")
    remove: list[RowId] | None = Field(
        None, min_length=1, max_length=10000, description="all others when left out"
    )
    dry_run: Flag = Field(True, description="false needs the setting dedup_allow_real_delete")


JobRequest = Annotated[
    ScanRequest | HashRequest | ThumbnailRequest | DeleteRequest, Field(discriminator="kind")
]

EXAMPLE_JOB: dict[str, Any] = {
    "id": "7a1c5d0e-3a43-4f6b-9d67-5f7f2b0f6f10",
    "kind": "scan",
    "status": "running",
    "library": "photos",
    "run_id": None,
    "requested_by": "api",
    "dry_run": True,
    "payload": {},
    "progress": 0.4,
    "total_items": None,
    "processed_items": 41000,
    "retry_count": 0,
    "retry_after": None,
    "error_code": None,
    "error_message": None,
    "worker_id": "node-1",
    "worker_heartbeat_at": "2026-01-31T12:00:10Z",
    "lease_expires_at": "2026-01-31T12:01:10Z",
    "created_at": "2026-01-31T11:59:59Z",
    "updated_at": "2026-01-31T12:00:10Z",
    "started_at": "2026-01-31T12:00:00Z",
    "finished_at": None,
}


class Job(BaseModel):
    """What a job is and where it stands. Its claim is nobody's but its worker's."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE_JOB})

    id: UUID
    kind: Kind
    status: Status
    library: str | None
    run_id: int | None
    requested_by: str
    dry_run: bool
    payload: Annotated[dict[str, Any], BeforeValidator(_loaded)]
    progress: float
    total_items: int | None
    processed_items: int
    retry_count: int
    retry_after: datetime | None
    error_code: str | None
    error_message: str | None
    worker_id: str | None
    worker_heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Move(BaseModel):
    from_status: Status | None
    to_status: Status
    worker_id: str | None
    error_code: str | None
    database_user: str
    at: datetime


class JobWithMoves(Job):
    moves: list[Move] = Field(description="the latest, the oldest of them first")


class JobPage(Page[Job]):
    pass


class Recovered(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": {"recovered": [EXAMPLE_JOB["id"]]}})

    recovered: list[UUID] = Field(description="they are retryable now")
