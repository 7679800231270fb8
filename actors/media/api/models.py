"""What comes in and what goes out, with their bounds."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from actors.media.write import Answer, Writer
from supervisor.api.principal import Principal, Role, principal_of

ID_MOST = 2**63 - 1
INTEGER_MOST = 2**31 - 1
EXAMPLE_HASH = "4b227777d4dd1fc6" * 4
ON_BEHALF_OF = "on whose behalf; grants nothing, and is yourself when left out"
ENTITY = r"^[^:\x00]{1,200}:[^\x00]{1,200}$"

# PostgreSQL stores no NUL
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
Entity = Annotated[str, StringConstraints(pattern=ENTITY)]
RefId = Annotated[int, Field(strict=True, ge=1, le=ID_MOST)]
# a position that no role has is for the rules to reject, and for the events to tell of
Position = Annotated[int, Field(strict=True, ge=-INTEGER_MOST, le=INTEGER_MOST)]
Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
PathHash = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", examples=[EXAMPLE_HASH])]
PathRef = Annotated[int, Path(ge=1, le=ID_MOST)]
QueryName = Annotated[str, Query(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
QueryEntity = Annotated[str, Query(pattern=ENTITY, description="TYPE:ID", examples=["post:7"])]


Asking = Annotated[Principal, Depends(principal_of)]


def writer_of(asking: Principal, on_behalf_of: str | None) -> Writer:
    return Writer.of(asking.name, is_admin=asking.role >= Role.ADMIN, on_behalf_of=on_behalf_of)


def split_entity(text: str) -> tuple[str, str]:
    """TYPE and ID; the ID may have colons of its own."""
    kind, _, name = text.partition(":")
    return kind, name


class Body(BaseModel):
    """What comes in: a field that is not known is a mistake, not a wish to be ignored."""

    model_config = ConfigDict(extra="forbid")

    request_id: UUID | None = Field(
        None, description="sent again under its id, a write is answered as before"
    )
    actor: Name | None = Field(None, description=ON_BEHALF_OF)


class Attach(Body):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "workspace": "w1",
                "entity": "post:7",
                "role": "cover",
                "position": 0,
                "blob_hash": EXAMPLE_HASH,
            }
        },
    )

    workspace: Name
    entity: Entity = Field(description="TYPE:ID")
    role: Name
    position: Position = 0
    blob_hash: Hash
    action: Literal["attach", "replace"] = "attach"
    on_occupied: Literal["replace", "reject"] = "replace"
    expected_ref_id: RefId | None = Field(None, description="the ref that is believed to be there")


class Move(Body):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"ref_id": 3, "position": 1, "on_occupied": "swap"}}
    )

    ref_id: RefId
    position: Position | None = None
    role: Name | None = None
    entity: Entity | None = Field(None, description="TYPE:ID of another entity of the same workspace")
    on_occupied: Literal["swap", "replace", "reject"] = "swap"


class Written(BaseModel):
    """What was decided, and what came of it."""

    request_id: UUID
    decision: Literal["INSERT", "DUPLICATE", "REPLACE", "REJECT", "NOOP"]
    result: Literal["OK_INSERTED", "OK_RETURN_EXISTING", "OK_REPLACED", "REJECTED", "FAILED"]
    ref_id: int | None
    blob_hash: str | None
    is_replay: bool = Field(description="answered from what was written down before")


class Stored(Written):
    mime_type: str
    file_size: int
    content_url: str


class Ref(BaseModel):
    id: int
    workspace_id: str
    entity_type: str
    entity_id: str
    role: str
    position: int
    blob_hash: str
    mime_type: str
    file_size: int
    source_ref_id: int | None = Field(description="of a rendition: the ref it was made from")
    rendition: str | None
    created_by: str
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None


class RefPage(BaseModel):
    items: list[Ref]
    next_cursor: str | None = Field(description="for the page behind this one; null at the end")


class Event(BaseModel):
    id: int
    created_at: datetime
    event_type: Literal["WRITE_REQUEST", "WRITE_DECISION", "WRITE_DB", "WRITE_RESULT"]
    decision: str | None
    result: str | None
    error_code: str | None
    error_message: str | None
    actor: str = Field(description="on whose behalf")
    principal: str | None = Field(description="who wrote; null for events of older releases")
    workspace_id: str | None
    entity_type: str | None
    entity_id: str | None
    role: str | None
    position: int | None
    blob_hash: str | None
    ref_id: int | None
    payload: dict[str, Any]


class Story(BaseModel):
    """Everything that was written down of a request, in its order."""

    request_id: UUID
    decision: str | None
    result: str | None
    events: list[Event]


class HealthCheck(BaseModel):
    name: str
    result: Literal["pass", "fail", "info", "unknown"] = Field(description="info: rows that are allowed")
    rows: int
    meaning: str
    advice: str
    sample: list[dict[str, Any]]


class Health(BaseModel):
    ok: bool
    checks: list[HealthCheck]


def written(answer: Answer) -> dict[str, Any]:
    names = ("request_id", "decision", "result", "ref_id", "blob_hash", "is_replay")
    return {name: getattr(answer, name) for name in names}
