"""Groups of files of equal content, and the files of one."""

from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from actors.dedup.api.cursors import GroupCursor, parse_group_cursor, parse_group_key, parse_id_cursor
from actors.dedup.api.models import LIBRARY_NAME, Cursor, Page, PageLimit, page_of
from actors.dedup.api.refusals import Route, documented
from actors.dedup.grouping import Place, read_groups
from supervisor.api.view import ReplicaView
from supervisor.errors import NotFound
from supervisor.store import Record, Store

# all files are counted for a page, in one pass over the index: of many millions that takes its time
GROUPS_SECONDS: Final = 60.0
EXAMPLE_KEY: Final = f"blake3:{'4b227777d4dd1fc6' * 4}"

KeyInPath = Annotated[str, Path(description="algorithm:hash", examples=[EXAMPLE_KEY])]


class Group(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "group_key": EXAMPLE_KEY,
                "file_count": 3,
                "total_size_bytes": 3072,
                "duplicate_waste_bytes": 2048,
                "sample_file_id": 17,
            }
        }
    )

    group_key: str
    file_count: int
    total_size_bytes: int
    duplicate_waste_bytes: int = Field(description="what is gained when one file stays")
    sample_file_id: int


class GroupPage(Page[Group]):
    pass


class GroupFile(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": 17,
                "library": "photos",
                "relative_path": "2024/may/a.jpg",
                "size_bytes": 1024,
                "mtime_ns": 1714557600000000000,
                "inode": 4711,
                "device": 66306,
                "hashed_at": "2026-01-31T12:00:00Z",
            }
        }
    )

    id: int
    library: str
    relative_path: str
    size_bytes: int
    mtime_ns: int
    inode: int | None
    device: int | None
    hashed_at: datetime | None


class GroupFilePage(Page[GroupFile]):
    pass


class Duplicates:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_groups(
        self,
        limit: PageLimit = 100,
        cursor: Cursor = None,
        library: Annotated[str | None, Query(pattern=LIBRARY_NAME)] = None,
    ) -> GroupPage:
        """The groups with most files first, then the largest. No group comes twice as long as no file
        changes. With a library, the groups within it: two or more of its files, and figures of these."""
        behind = _place(None if cursor is None else parse_group_cursor(cursor))
        within = None if library is None else await self._library_id(library)
        rows = await read_groups(self._store, within, behind, limit + 1, GROUPS_SECONDS)
        return page_of(GroupPage, rows, limit, _group_cursor)

    async def list_files(
        self, group_key: KeyInPath, limit: PageLimit = 100, cursor: Cursor = None
    ) -> GroupFilePage:
        """By id. The cursor is the id of the last file of the page before."""
        key = parse_group_key(group_key)
        after = 0 if cursor is None else parse_id_cursor(cursor)
        rows = await self._files(key.hash_algorithm, key.content_hash, after, limit + 1)
        if not rows and (after == 0 or not await self._files(key.hash_algorithm, key.content_hash, 0, 1)):
            raise NotFound(kind="group", name=key)
        return page_of(GroupFilePage, rows, limit, lambda row: str(row["id"]))

    async def _files(self, algorithm: str, content_hash: bytes, after: int, rows: int) -> list[Record]:
        return list(await self._store.rows("list_group_files", algorithm, content_hash, after, rows))

    async def _library_id(self, name: str) -> int:
        found = await self._store.row("read_library_root", name)
        if found is None:
            raise NotFound(kind="library", name=name)
        number: int = found["id"]
        return number


def _place(last: GroupCursor | None) -> Place | None:
    if last is None:
        return None
    content_hash = bytes.fromhex(last.content_hash_hex)
    return Place(last.file_count, last.total_size_bytes, last.hash_algorithm, content_hash)


def _group_cursor(row: Record) -> str:
    return GroupCursor(
        row["file_count"], int(row["total_size_bytes"]), row["hash_algorithm"], row["content_hash_hex"]
    ).encode()


def routes(view: ReplicaView) -> APIRouter:
    duplicates = Duplicates(view.store)
    router = APIRouter(prefix="/duplicates/groups", tags=["duplicates"], route_class=Route)
    router.add_api_route(
        "",
        duplicates.list_groups,
        methods=["GET"],
        summary="List groups of files with equal content",
        responses=documented(404),
    )
    router.add_api_route(
        "/{group_key}/files",
        duplicates.list_files,
        methods=["GET"],
        summary="List the files of a group",
        responses=documented(404),
    )
    return router
