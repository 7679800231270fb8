"""An upload as it arrives: one file and some fields, multipart, spooled to a file that is bounded."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO, Any, Final
from uuid import UUID

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from actors.media.api.models import ENTITY, ON_BEHALF_OF, Hash, Name
from actors.media.content import ContentTooLarge
from supervisor.errors import BadInput

FIELDS: Final = 12
FIELD_BYTES: Final = 4096
# what surrounds the file: borders, heads, fields
MARGIN_BYTES: Final = 128 * 1024


class Fields(BaseModel):
    """With a slot the content is attached there; without one it is only kept, for a while."""

    model_config = ConfigDict(extra="forbid")

    request_id: UUID | None = None
    actor: Name | None = None
    expected_hash: Hash | None = None
    expected_size: int | None = Field(None, ge=0)
    workspace: Name | None = None
    entity: str | None = Field(None, pattern=ENTITY)
    role: Name | None = None
    position: int = Field(0, ge=-(2**31), le=2**31 - 1)
    on_occupied: str = Field("replace", pattern="^(replace|reject)$")

    @model_validator(mode="after")
    def _whole_slot(self) -> "Fields":
        if len({value is None for value in (self.workspace, self.entity, self.role)}) > 1:
            raise ValueError("a slot has workspace, entity and role; leave all of them out to keep it only")
        return self


@dataclass(frozen=True, slots=True)
class Upload:
    file: IO[bytes]
    fields: Fields


SCHEMA: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "request_id": {"type": "string", "format": "uuid"},
                        "actor": {"type": "string", "maxLength": 200, "description": ON_BEHALF_OF},
                        "expected_hash": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                        "expected_size": {"type": "integer", "minimum": 0},
                        "workspace": {"type": "string"},
                        "entity": {"type": "string", "description": "TYPE:ID"},
                        "role": {"type": "string"},
                        "position": {"type": "integer", "default": 0},
                        "on_occupied": {"type": "string", "enum": ["replace", "reject"]},
                    },
                }
            }
        },
    }
}


@asynccontextmanager
async def read_upload(request: Request, limit: int) -> AsyncIterator[Upload]:
    """Of a body that is longer than it may be no more is read than that."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise BadInput(what="an upload is multipart/form-data with a part `file`")
    if int(request.headers.get("content-length", "0")) > limit + MARGIN_BYTES:
        raise ContentTooLarge(limit=limit)
    parser = MultiPartParser(
        request.headers,
        _bounded(request, limit),
        max_files=1,
        max_fields=FIELDS,
        max_part_size=FIELD_BYTES,
    )
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        raise BadInput(what=f"the body is no multipart form that can be read: {_told(error)}") from None
    try:
        yield _checked(dict(form.multi_items()), len(form.multi_items()))
    finally:
        await form.close()


def _told(error: Exception) -> str:
    return error.message if isinstance(error, MultiPartException) else "it is cut or malformed"


def _checked(parts: dict[str, Any], count: int) -> Upload:
    file = parts.pop("file", None)
    if not isinstance(file, UploadFile):
        raise BadInput(what="the part `file` with a file name is missing")
    if len(parts) + 1 != count or any(isinstance(part, UploadFile) for part in parts.values()):
        raise BadInput(what="each field is given once, and only `file` is a file")
    try:
        return Upload(file.file, Fields(**parts))
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_context=False)) from None


async def _bounded(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    taken = 0
    async for piece in request.stream():
        taken += len(piece)
        if taken > limit + MARGIN_BYTES:
            raise ContentTooLarge(limit=limit)
        yield piece
