"""What comes in and what goes out, with their bounds."""

from datetime import date, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

BIGINT = 2**63 - 1
INTEGER = 2**31 - 1

User = Annotated[int, Path(ge=-BIGINT, le=BIGINT, description="Whose schedule it is.")]
State = Literal["pending", "processing", "done", "failed"]
# PostgreSQL stores no NUL
Reason = Annotated[
    str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00]*[^\x00\s][^\x00]*$")
]


class Entry(BaseModel):
    model_config = ConfigDict(extra="allow")

    start: str = Field(examples=["08:00"])
    end: str | None = Field(None, examples=["12:00"])
    title: str = Field(examples=["Pottery class"])
    location: str | None = Field(None, examples=["Room 4"])


class Session(BaseModel):
    """`error` says why a failed one failed; a done one has made `version` of `schedule_date`."""

    session_id: UUID
    state: State
    error: str | None
    schedule_date: date | None
    version: int | None
    payload: dict[str, Any] | None = None
    user_id: int
    created_at: datetime
    images: int | None = None
    locked_by: str | None = None
    payload_hash: str | None = None


class SessionPage(BaseModel):
    items: list[Session]
    next: str | None


class Refusal(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: Reason


class Day(BaseModel):
    user_id: int
    schedule_date: date
    version: int
    current_version: int
    session_id: UUID
    payload: dict[str, Any]
    payload_hash: str
    created_at: datetime


class DayListed(BaseModel):
    schedule_date: date
    current_version: int


class DayPage(BaseModel):
    items: list[DayListed]
    next: str | None


class VersionListed(BaseModel):
    version: int
    session_id: UUID
    payload_hash: str
    created_at: datetime
    entries: int


class VersionPage(BaseModel):
    items: list[VersionListed]
    next: str | None


class Changed(BaseModel):
    before: Entry
    after: Entry


class DayDifferences(BaseModel):
    user_id: int
    schedule_date: date
    from_version: int
    to_version: int
    added: list[Entry]
    removed: list[Entry]
    changed: list[Changed]
