"""Libraries, and the walks over them."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, status
from pydantic import BaseModel, ConfigDict, Field

from actors.dedup.api.cursors import (
    ID_MOST,
    InvalidCursor,
    parse_id_cursor,
    parse_name_cursor,
    parse_path_cursor,
    path_cursor,
)
from actors.dedup.api.models import Body, Cursor, Name, Page, PageLimit, PathId, PathName, page_of
from actors.dedup.api.refusals import Route, documented
from actors.dedup.confine import FileTrouble, library_root
from actors.dedup.removal import remove_library
from supervisor.api.principal import Actor
from supervisor.api.view import ReplicaView
from supervisor.errors import Conflict, NotFound
from supervisor.store import Record
from supervisor.threads import in_thread


class LibrariesDirUnset(Conflict):
    """this replica has no directory of libraries: {what}"""

    hint = "set TENURE_LIBRARIES_DIR to the directory that holds the libraries, and start the replica again"
    code = "LIBRARIES_DIR_UNSET"


class LibraryRequest(Body):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"name": "photos", "path": "photos"}}
    )

    name: Name
    path: Annotated[str, Field(min_length=1, max_length=4096, description="below TENURE_LIBRARIES_DIR")]


class Library(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": 1,
                "name": "photos",
                "path": "photos",
                "last_scanned_at": "2026-01-31T12:00:00Z",
                "created_at": "2026-01-30T08:00:00Z",
                "updated_at": "2026-01-31T12:00:00Z",
                "last_session_id": 9,
                "last_session_status": "succeeded",
            }
        }
    )

    id: int
    name: str
    path: str
    last_scanned_at: datetime | None
    created_at: datetime
    updated_at: datetime
    last_session_id: int | None
    last_session_status: Literal["running", "succeeded", "failed"] | None


class LibraryPage(Page[Library]):
    pass


class ScanSession(BaseModel):
    id: int = Field(examples=[9])
    library: str = Field(examples=["photos"])
    job_id: UUID | None
    status: Literal["running", "succeeded", "failed"]
    files_seen: int
    directories_seen: int
    bytes_seen: int
    skipped: int
    error_count: int
    files_new: int
    files_changed: int
    files_moved: int
    files_missing: int
    batches: int
    resumed: int = Field(description="how often it was cut and went on")
    error_code: str | None
    error_message: str | None
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None


class ScanSessionPage(Page[ScanSession]):
    pass


class ScanError(BaseModel):
    path: str = Field(examples=["2024/locked"])
    code: str = Field(examples=["PERMISSION_DENIED"])
    at: datetime


class ScanErrorPage(Page[ScanError]):
    pass


class Libraries:
    def __init__(self, view: ReplicaView) -> None:
        self._store = view.store
        self._libraries_dir = view.settings.libraries_dir

    async def add(self, actor: Actor, asked: LibraryRequest) -> Library:
        """Nothing is scanned yet. The path is one below the libraries' directory, without `..`, `~` and `$`,
        and is a directory that no symbolic link leads to."""
        await self._check(asked.path)
        row = await self._store.row("add_library_root", actor, asked.name, asked.path)
        return _library(row, asked.name)

    async def _check(self, path: str) -> None:
        if self._libraries_dir is None:
            raise LibrariesDirUnset(what="TENURE_LIBRARIES_DIR is not set")
        libraries: Path = self._libraries_dir
        try:
            await in_thread(lambda _stop: library_root(libraries, path).close())
        except FileTrouble as error:
            if error.path == str(libraries):
                raise LibrariesDirUnset(what=error.code) from None
            raise

    async def list(self, limit: PageLimit = 100, cursor: Cursor = None) -> LibraryPage:
        """By name."""
        after = "" if cursor is None else parse_name_cursor(cursor)
        rows = await self._store.rows("list_library_roots", after, limit + 1)
        return page_of(LibraryPage, rows, limit, lambda row: str(row["name"]))

    async def read(self, name: PathName) -> Library:
        return _library(await self._store.row("read_library_root", name), name)

    async def remove(self, actor: Actor, name: PathName) -> None:
        """The database forgets it: files, jobs, thumbnails. The originals stay as they are."""
        await remove_library(self._store, actor, name)

    async def list_sessions(
        self, name: PathName, limit: PageLimit = 100, cursor: Cursor = None
    ) -> ScanSessionPage:
        """The newest first."""
        before = ID_MOST if cursor is None else parse_id_cursor(cursor)
        library = await self.read(name)
        rows = await self._store.rows("list_scan_sessions", library.id, before, limit + 1)
        return page_of(ScanSessionPage, rows, limit, lambda row: str(row["id"]))

    async def read_session(self, session_id: PathId) -> ScanSession:
        row = await self._store.row("read_scan_session", session_id)
        if row is None:
            raise NotFound(kind="session", name=session_id)
        return ScanSession.model_validate(dict(row))

    async def list_errors(
        self, session_id: PathId, limit: PageLimit = 100, cursor: Cursor = None
    ) -> ScanErrorPage:
        """What the walk could not read, by path."""
        wanted = None if cursor is None else parse_path_cursor(cursor)
        await self.read_session(session_id)
        after = ""
        if wanted is not None:
            after = await self._store.value("find_scan_error", session_id, wanted)
            if after is None:
                raise InvalidCursor(what="its error is no longer there")
        rows = await self._store.rows("list_scan_errors", session_id, after, limit + 1)
        return page_of(ScanErrorPage, rows, limit, lambda row: path_cursor(row["path"]))


def _library(row: Record | None, name: str) -> Library:
    if row is None:
        raise NotFound(kind="library", name=name)
    return Library.model_validate(dict(row))


def routes(view: ReplicaView) -> APIRouter:
    libraries, router = Libraries(view), APIRouter(tags=["libraries"], route_class=Route)
    router.add_api_route(
        "/libraries",
        libraries.add,
        methods=["POST"],
        status_code=status.HTTP_201_CREATED,
        summary="Add a library",
        responses=documented(409),
    )
    router.add_api_route(
        "/libraries/{name}",
        libraries.remove,
        methods=["DELETE"],
        status_code=status.HTTP_204_NO_CONTENT,
        summary="Forget a library",
        responses=documented(404, 409),
    )
    for path, handler, what, statuses in (
        ("/libraries", libraries.list, "List libraries", ()),
        ("/libraries/{name}", libraries.read, "Show a library", (404,)),
        ("/libraries/{name}/sessions", libraries.list_sessions, "List the walks over a library", (404,)),
        ("/scan-sessions/{session_id}", libraries.read_session, "Show a walk", (404,)),
        (
            "/scan-sessions/{session_id}/errors",
            libraries.list_errors,
            "List what a walk could not read",
            (404,),
        ),
    ):
        router.add_api_route(path, handler, methods=["GET"], summary=what, responses=documented(*statuses))
    return router
