"""`/dedup/duplicates`: groups of equal files, those first that would free most; and the files of one."""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Query, Request, Response

from actors.dedup.api.cursors import ID_MOST, GroupKey, parse_group_key
from actors.dedup.api.models import LIBRARY_NAME
from supervisor.api.v1.paging import BadCursor, Cursor, decode, encode
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.errors import NotFound, OutcomeUnknown, TenureError
from supervisor.store import Record, Store

PAGE: Final = 30
FILES: Final = 100
GROUPS_SECONDS: Final = 30.0
BYTES: Final = re.compile(r"0|[1-9][0-9]{0,29}")


def add_to(router: page.PageRouter, replica: ReplicaView, looks: str) -> None:
    store = replica.store

    @router.get("/duplicates")
    async def list_groups(
        request: Request,
        library: Annotated[str, Query(pattern=rf"^$|{LIBRARY_NAME}")] = "",
        cursor: Cursor = None,
    ) -> Response:
        rows = await _groups(store, library, cursor)
        return page.render(
            request,
            "dedup/duplicates.html",
            groups=rows[:PAGE],
            library=library,
            libraries=[row["name"] for row in await store.rows("list_library_roots", "", 1000)],
            is_first=cursor is None,
            older=_next(library, rows[PAGE - 1]) if len(rows) > PAGE else None,
            looks=looks,
        )

    @router.get("/duplicates/{key}")
    async def show_group(
        request: Request, key: str, after: Annotated[int, Query(ge=0, le=ID_MOST)] = 0
    ) -> Response:
        wanted = parse_group_key(key)
        group = await store.row("see_duplicate", wanted.hash_algorithm, wanted.content_hash)
        if group is None:
            raise NoGroup(kind="group", name=wanted)
        files = await store.rows(
            "list_group_files", wanted.hash_algorithm, wanted.content_hash, after, FILES + 1
        )
        return page.render(
            request,
            "dedup/group.html",
            now=group["now"],
            key=wanted,
            group=group,
            files=files[:FILES],
            is_first=after == 0,
            next_after=files[FILES - 1]["id"] if len(files) > FILES else None,
            looks=looks,
        )


class NoGroup(NotFound):
    """no file with the content {name}"""

    hint = "its files have changed or gone since; the list of groups shows what there is now"


class TooManyFiles(TenureError):
    """the files could not be compared in time for a page"""

    hint = "choose a library, or let `tenure duplicates --csv` take its time"
    http_status = 503


async def _groups(store: Store, library: str, cursor: str | None) -> Sequence[Record]:
    behind: tuple[Any, ...] = (None, None, None)
    if cursor is not None:
        waste, key = decode(cursor, str, str)
        if not BYTES.fullmatch(waste):
            raise BadCursor
        group = parse_group_key(key)
        behind = Decimal(waste), group.hash_algorithm, group.content_hash
    query, within = "see_duplicates", tuple[int, ...]()
    if library:
        found = await store.row("read_library_root", library)
        if found is None:
            raise NotFound(kind="library", name=library)
        query, within = "see_library_duplicates", (found["id"],)
    try:
        return await store.rows(query, *behind, PAGE + 1, *within, timeout=GROUPS_SECONDS)
    except OutcomeUnknown:
        raise TooManyFiles from None


def _next(library: str, last: Record) -> str:
    key = GroupKey(last["hash_algorithm"], bytes.fromhex(last["content_hash_hex"]))
    place = {"cursor": encode(str(last["waste_bytes"]), str(key))}
    return f"/dedup/duplicates?{urlencode(({'library': library} if library else {}) | place)}"
