"""Runs as they are shown."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from supervisor.api.v1.paging import BIGINT, Page
from supervisor.api.v1.route import Asked
from supervisor.jobrun import State
from supervisor.operations import BULK

EXAMPLE_RUN: dict[str, Any] = {
    "id": 7,
    "root_id": 7,
    "job": "nightly",
    "domain": "command",
    "action": None,
    "state": "RUNNING",
    "continuation_state": "NONE",
    "attempt": 1,
    "starts": 1,
    "max_attempts": 3,
    "priority": 0,
    "assigned_worker_id": "node-1-5f7f2b0f",
    "not_before": "2026-01-31T01:30:00+00:00",
    "created_at": "2026-01-31T01:30:00+00:00",
    "started_at": "2026-01-31T01:30:01+00:00",
    "finished_at": None,
    "cancel_requested_at": None,
    "error_code": None,
    "error_message": None,
    "retry_of_id": None,
    "next_attempt_id": None,
}


class RunListed(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE_RUN})

    id: int
    root_id: int = Field(description="the first attempt; all attempts share it")
    job: str | None
    domain: str
    action: str | None
    state: State
    continuation_state: Literal["NONE", "CONFIRMING"]
    attempt: int
    starts: int
    max_attempts: int
    priority: int
    assigned_worker_id: str | None
    not_before: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    error_code: str | None
    error_message: str | None = Field(description="its first 500 characters")
    retry_of_id: int | None
    next_attempt_id: int | None


class Step(BaseModel):
    """`leader_epoch`: the acting leader's; for a worker's move, the one it was given the run under."""

    version: int
    from_state: State | None
    to_state: State
    continuation_state: str
    attempt: int
    at: datetime
    worker_id: str | None
    leader_epoch: int | None
    claim_id: UUID | None
    reason: str | None


class Attempt(BaseModel):
    id: int
    attempt: int
    state: State
    assigned_worker_id: str | None
    leader_epoch: int | None
    created_at: datetime
    assigned_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    error_code: str | None


class RunShown(BaseModel):
    """Every column under its name, as `tenure run show --json`, and the attempts of its root."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {
                **EXAMPLE_RUN,
                "version": 3,
                "payload": {"argv": ["backup", "--all"]},
                "result": None,
                "late_finishes": [],
                "history": [
                    {
                        "version": 1,
                        "from_state": None,
                        "to_state": "PENDING",
                        "continuation_state": "NONE",
                        "attempt": 1,
                        "at": "2026-01-31T01:30:00+00:00",
                        "worker_id": None,
                        "leader_epoch": 4,
                        "claim_id": None,
                        "reason": "TIME",
                    }
                ],
                "attempts": [],
            }
        },
    )

    id: int
    root_id: int
    job: str | None
    domain: str
    state: State
    version: int
    attempt: int
    payload: dict[str, Any]
    result: Any
    history: list[Step]
    late_finishes: list[dict[str, Any]]
    attempts: list[Attempt]


class WhyShown(BaseModel):
    """The one reason why a run is not running, as `tenure run why --json`."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": 7,
                "state": "PENDING",
                "reason": "DOMAIN_PAUSED",
                "sentence": "the domain command is paused",
                "until": None,
                "evidence": {"paused_at": "2026-01-31T01:00:00+00:00"},
                "next": "`tenure domain resume command`",
            }
        }
    )

    id: int
    state: State
    reason: str
    sentence: str
    until: datetime | None
    evidence: dict[str, Any]
    next: str = Field(description="what to do")


class LogLine(BaseModel):
    seq: int
    stream: Literal["stdout", "stderr", "log", "tenure"]
    at: datetime
    body: str


class LogPage(Page[LogLine]):
    pass


class CancelAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": {"id": 7, "state": "RUNNING", "requested": True}})

    id: int
    state: State
    requested: bool = Field(description="false where it had been asked before")


class RetryAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": {"id": 7, "requested": True}})

    id: int
    requested: bool


class RunsAsked(Asked):
    model_config = ConfigDict(json_schema_extra={"example": {"ids": [7, 8]}})

    ids: list[Annotated[int, Field(ge=1, le=BIGINT)]] = Field(
        min_length=1, max_length=BULK, description="runs, each for itself"
    )


class OutcomeShown(BaseModel):
    id: int
    outcome: Literal["requested", "already", "refused", "not_found"]
    what: str | None = Field(description="why it was refused")


class OutcomesAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "items": [
                    {"id": 7, "outcome": "requested", "what": None},
                    {"id": 8, "outcome": "refused", "what": "run 8 has ended as FAILED"},
                ]
            }
        }
    )

    items: list[OutcomeShown]
