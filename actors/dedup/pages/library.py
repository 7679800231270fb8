"""`/dedup/libraries/NAME`: its walks, its jobs and its errors; and asking for work on it."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from actors.dedup.api.cursors import ID_MOST, parse_path_cursor, path_cursor
from actors.dedup.api.models import PathName
from actors.dedup.cli.trigger import trigger
from actors.dedup.pages.counts import Counts, counted_at
from actors.dedup.pages.libraries import OPEN_JOBS
from actors.dedup.pages.progress import KINDS, by_library
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.console.forms import Form, Operator, text_of
from supervisor.errors import BadInput, NotFound
from supervisor.store import Record, Store

WALKS: Final = 20
JOBS: Final = 20
JOBS_LOOK: Final = 2000
SOME_ERRORS: Final = 10
ERRORS: Final = 100
ERRORS_SECONDS: Final = 20.0

ACTIONS: Final[Mapping[str, tuple[str, Mapping[str, Any], str]]] = {
    "scan": ("scan", {}, "a scan"),
    "hash": ("scan", {"hash": True}, "a scan, and the hashing of what is new,"),
    "thumbnails": ("thumbnails-for-library", {}, "thumbnails"),
}
"""What a button asks for: the action of a run, its payload, and how it is called."""

Before = Annotated[int | None, Query(ge=1, le=ID_MOST)]
LastPath = Annotated[str | None, Query(max_length=64)]


def add_to(router: page.PageRouter, replica: ReplicaView, counts: Counts) -> None:
    store = replica.store

    @router.get("/libraries/{name}")
    async def show(request: Request, name: PathName, before: Before = None) -> Response:
        library = await _found(store, name)
        walks = await store.rows("list_scan_sessions", library["id"], before or ID_MOST, WALKS + 1)
        last = await _ended_walk(store, library["id"])
        errors = await store.rows("list_scan_errors", last, "", SOME_ERRORS + 1) if last else []
        counted = await counts.get()
        return page.render(
            request,
            "dedup/library.html",
            now=await store.value("see_clock"),
            library=library,
            count=(counted or {}).get(library["id"]),
            counted_at=counted_at(counted),
            walks=walks[:WALKS],
            next_before=walks[WALKS - 1]["id"] if len(walks) > WALKS else None,
            is_first=before is None,
            errors=errors[:SOME_ERRORS],
            more_errors=len(errors) > SOME_ERRORS,
            jobs=await store.rows("see_library_jobs", library["id"], JOBS, JOBS_LOOK),
            work=by_library(await store.rows("see_library_work", OPEN_JOBS)).get(library["id"], []),
            kinds=KINDS,
        )

    @router.get("/libraries/{name}/errors")
    async def show_errors(
        request: Request, name: PathName, scan_after: LastPath = None, hash_after: Before = None
    ) -> Response:
        library = await _found(store, name)
        last = await _ended_walk(store, library["id"])
        unread = await _scan_errors(store, last, scan_after)
        unhashed = await store.rows(
            "see_hash_errors", library["id"], hash_after or 0, ERRORS + 1, timeout=ERRORS_SECONDS
        )
        return page.render(
            request,
            "dedup/errors.html",
            now=await store.value("see_clock"),
            library=library,
            walk=last,
            unread=unread[:ERRORS],
            next_scan=path_cursor(unread[ERRORS - 1]["path"]) if len(unread) > ERRORS else None,
            unhashed=unhashed[:ERRORS],
            next_hash=unhashed[ERRORS - 1]["id"] if len(unhashed) > ERRORS else None,
        )

    @router.post("/libraries/{name}")
    async def act(request: Request, name: PathName, form: Form, operator: Operator) -> Response:
        what = text_of(form, "do")
        if what not in ACTIONS:
            raise BadInput(what="a library can be scanned, hashed or given thumbnails")
        library = await _found(store, name)
        action, payload, words = ACTIONS[what]
        run = await trigger(store, operator.name, action, {"library": library["name"], **payload})
        text = f"Asked for {words} of {library['name']}: run {run['id']}."
        return page.done(request, page.path_of("dedup/libraries", library["name"]), text)


async def _found(store: Store, name: str) -> Record:
    row = await store.row("read_library_root", name)
    if row is None:
        raise NotFound(kind="library", name=name)
    return row


async def _ended_walk(store: Store, library_id: int) -> int | None:
    """The last one; at most one goes on."""
    walks = await store.rows("list_scan_sessions", library_id, ID_MOST, 2)
    return next((walk["id"] for walk in walks if walk["status"] != "running"), None)


async def _scan_errors(store: Store, session: int | None, after: str | None) -> Sequence[Record]:
    """Of one walk. A cursor of another one begins anew: its path need not be there."""
    if session is None:
        return []
    behind = await store.value("find_scan_error", session, parse_path_cursor(after)) if after else None
    return await store.rows("list_scan_errors", session, behind or "", ERRORS + 1)
