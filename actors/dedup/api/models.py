"""What several nouns of this API share: the bounds of what comes in, and the form of a page that goes out."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from actors.dedup.api.cursors import ID_MOST
from supervisor.store import Record

LIBRARY_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"

# A number in a body is a number: neither "7" nor true. PostgreSQL's bigint ends at ID_MOST.
RowId = Annotated[int, Field(strict=True, ge=1, le=ID_MOST)]
Count = Annotated[int, Field(strict=True, ge=0, le=ID_MOST)]
Flag = Annotated[bool, Field(strict=True)]
Dimension = Annotated[int, Field(strict=True, ge=16, le=2048, description="pixels of the longer side")]
Name = Annotated[str, StringConstraints(pattern=LIBRARY_NAME)]
# PostgreSQL stores no NUL
Prose = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=2000)]

PathId = Annotated[int, Path(ge=1, le=ID_MOST)]
PathName = Annotated[str, Path(pattern=LIBRARY_NAME)]
Cursor = Annotated[str | None, Query(description="`next_cursor` of the page before")]
PageLimit = Annotated[int, Query(ge=1, le=1000)]
ShortPageLimit = Annotated[int, Query(ge=1, le=200)]

T = TypeVar("T")


class Body(BaseModel):
    """What comes in: a field that is not known is a mistake, not a wish to be ignored."""

    model_config = ConfigDict(extra="forbid")


class Page(BaseModel, Generic[T]):
    items: list[T]
    next_cursor: str | None = Field(description="for the page behind this one; null at the end")


P = TypeVar("P", bound=Page[Any])


def page_of(page: type[P], rows: Sequence[Record], limit: int, cursor: Callable[[Record], str]) -> P:
    """Of one row more than a page has: that there is a next one."""
    shown = rows[:limit]
    more = len(rows) > limit
    return page(items=[dict(row) for row in shown], next_cursor=cursor(shown[-1]) if more else None)
