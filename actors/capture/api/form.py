"""A submission as it arrives: pictures and some fields, multipart, spooled to files that are bounded."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from actors.capture.api.models import BIGINT
from actors.capture.submit import Picture, PictureTooLarge
from supervisor.errors import BadInput

FIELDS: Final = 4
FIELD_BYTES: Final = 4096
# what surrounds the pictures: borders, heads, fields
MARGIN_BYTES: Final = 128 * 1024
# the most that the setting capture_max_images can ever be, and one to say that there are too many
PARTS: Final = 21


class Fields(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user: int = Field(ge=-BIGINT, le=BIGINT)
    session_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    fields: Fields
    pictures: Sequence[Picture]


SCHEMA: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["user", "images"],
                    "properties": {
                        "user": {"type": "integer", "description": "Whose schedule it is."},
                        "session_id": {
                            "type": "string",
                            "format": "uuid",
                            "description": "Sent again under it, the session is the same.",
                        },
                        "images": {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "format": "binary"},
                            "description": "In the order in which they are read.",
                        },
                    },
                }
            }
        },
    }
}


@asynccontextmanager
async def read_submission(request: Request, limit: int) -> AsyncIterator[Submission]:
    """Of a body that is longer than it may be no more is read than that."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise BadInput(what="a submission is multipart/form-data with parts `user` and `images`")
    parser = MultiPartParser(
        request.headers,
        _bounded(request, limit),
        max_files=PARTS,
        max_fields=FIELDS,
        max_part_size=FIELD_BYTES,
    )
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        told = error.message if isinstance(error, MultiPartException) else "it is cut or malformed"
        raise BadInput(what=f"the body is no multipart form that can be read: {told}") from None
    try:
        yield _checked(form)
    finally:
        await form.close()


def _checked(form: FormData) -> Submission:
    pictures: list[Picture] = []
    fields: dict[str, Any] = {}
    for name, part in form.multi_items():
        if isinstance(part, UploadFile):
            if name != "images":
                raise BadInput(what="only `images` are files")
            pictures.append(Picture(f"picture {len(pictures) + 1}", part.file))
        elif name in fields:
            raise BadInput(what="each field is given once")
        else:
            fields[name] = part
    try:
        return Submission(Fields(**fields), pictures)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_context=False)) from None


async def _bounded(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    taken = 0
    async for piece in request.stream():
        taken += len(piece)
        if taken > limit + MARGIN_BYTES:
            raise PictureTooLarge(name="the submission", limit=limit)
        yield piece
