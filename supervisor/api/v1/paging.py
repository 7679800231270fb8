"""Pages by key: where one begins, as the client hands it back. A cursor is read as a stranger's text.

It is base64url of a JSON list of the last key. What is not ours in every detail is refused; nothing malformed
ever means the first page.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Generic, TypeVar
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel, Field

from supervisor.errors import BadInput

BIGINT: Final = 2**63 - 1
CHARACTERS: Final = 1024
SCAN_ROWS: Final = 20_000
"""How far a filter without an index looks for one page. So a page costs the same however long history is."""
LATEST: Final = datetime(9998, 1, 1, tzinfo=UTC)
EARLIEST: Final = datetime(1970, 1, 2, tzinfo=UTC)

T = TypeVar("T")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")

Limit = Annotated[int, Query(ge=1, le=200, description="how many")]
Cursor = Annotated[
    str | None, Query(max_length=CHARACTERS, description="`next` of the page before; none for the first page")
]


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None = Field(
        description="the cursor of the next page; null at the end. Where a filter looks through a long "
        "history, a page can be short, or empty, and there is a next one all the same"
    )


class BadCursor(BadInput):
    """this is not a cursor of this listing"""

    hint = "give `next` of the page before as it was, or no cursor for the first page"


def encode(*key: int | str | datetime | UUID) -> str:
    text = json.dumps([_written(part) for part in key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(cursor: str, *kinds: type) -> tuple[Any, ...]:
    """The key, of parts of these kinds: int, str, datetime or UUID."""
    if not _BASE64URL.fullmatch(cursor):
        raise BadCursor
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(parts, list) or len(parts) != len(kinds):
            raise BadCursor
        key = tuple(_read(part, kind) for part, kind in zip(parts, kinds, strict=True))
    except (binascii.Error, ValueError, OverflowError, RecursionError):
        raise BadCursor from None
    if encode(*key) != cursor:
        raise BadCursor
    return key


def page(rows: Sequence[Any], limit: int, cursor: Callable[[Any], str]) -> dict[str, Any]:
    """Of one row more than a page has, which tells that there is another page."""
    shown = list(rows[:limit])
    return {"items": shown, "next": cursor(shown[-1]) if len(rows) > limit else None}


def _written(part: int | str | datetime | UUID) -> int | str:
    if isinstance(part, datetime):
        return part.astimezone(UTC).isoformat()
    return str(part) if isinstance(part, UUID) else part


def _read(part: Any, kind: type) -> int | str | datetime | UUID:
    if kind is int:
        if type(part) is not int or not 0 <= part <= BIGINT:
            raise BadCursor
        return part
    if not isinstance(part, str):
        raise BadCursor
    if kind is UUID:
        return UUID(part)
    if kind is datetime:
        moment = datetime.fromisoformat(part)
        if moment.tzinfo is None or not EARLIEST <= moment <= LATEST:
            raise BadCursor
        return moment
    if "\0" in part:
        raise BadCursor
    part.encode()  # a lone surrogate is a ValueError
    return part
