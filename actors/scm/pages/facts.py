"""What was read of a repository, newest first: its runs, revisions, commits and merge requests."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import Path, Query, Request, Response

from actors.scm.pages.checking import BADGES, Shelf, check
from actors.scm.pages.standing import KINDS, object_of, span
from supervisor.api.v1.paging import BIGINT, Cursor, decode, encode
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.errors import NotFound
from supervisor.store import Record, Store

PAGE: Final = 50
CHECKED: Final = 25
"""Rows of a page whose evidence is read and compared."""

Kind = Literal["runs", "revisions", "commits", "merge-requests"]
TITLES: Final[Mapping[str, str]] = {
    "runs": "Syncs",
    "revisions": "Revisions",
    "commits": "Commits",
    "merge-requests": "Merge requests",
}
_QUERIES: Final[Mapping[str, tuple[str, tuple[type, ...], Callable[[Record], tuple[Any, ...]]]]] = {
    "runs": ("see_sync_runs", (datetime, str), lambda row: (row["started_at"], row["run_id"])),
    "revisions": ("see_revisions", (int,), lambda row: (row["rev_num"],)),
    "commits": ("see_commits", (datetime, str), lambda row: (row["ts"], row["commit_sha"])),
    "merge-requests": (
        "see_merge_requests",
        (datetime, int),
        lambda row: (row["source_updated_at"], row["iid"]),
    ),
}
"""The statement of each kind, and the key of its rows."""


def add_to(router: page.PageRouter, replica: ReplicaView, shelf: Shelf) -> None:
    store = replica.store

    @router.get("/repositories/{name}/{kind}")
    async def list_facts(
        request: Request,
        name: Annotated[str, Path(max_length=63)],
        kind: Kind,
        cursor: Cursor = None,
        verify: Annotated[bool, Query()] = False,
    ) -> Response:
        repo = await store.row("see_repositories", "", 1, name)
        if repo is None:
            raise NotFound(kind="repo", name=name)
        limit = CHECKED if verify else PAGE
        rows = await read(store, kind, repo["repo_id"], cursor, limit + 1)
        shown = rows[:limit]
        has_evidence = kind in ("revisions", "commits")
        return page.render(
            request,
            "scm/facts.html",
            now=await store.value("see_clock"),
            name=name,
            kind=kind,
            titles=TITLES,
            rows=shown,
            spans={run["run_id"]: span(run) for run in shown} if kind == "runs" else {},
            object_of=object_of,
            has_evidence=has_evidence,
            verify=verify,
            verdicts=await check(shelf.artifacts, shown) if verify and has_evidence else {},
            badges=BADGES,
            this=_address(name, kind, cursor, verify=True),
            older=_address(name, kind, _cursor(kind, shown[-1]), verify=verify)
            if len(rows) > limit
            else None,
            is_first=cursor is None,
            kinds=KINDS,
        )


def kinds_of(repo_kind: str) -> Sequence[Kind]:
    """What can be read of it, besides runs."""
    if repo_kind == "svn":
        return ("revisions",)
    return ("commits", "merge-requests") if repo_kind == "gitlab" else ("commits",)


async def read(store: Store, kind: str, repo_id: int, cursor: str | None, rows: int) -> Sequence[Record]:
    query, key, _ = _QUERIES[kind]
    first: tuple[Any, ...] = (BIGINT,) if kind == "revisions" else (None, None)
    behind = first if cursor is None else decode(cursor, *key)
    return await store.rows(query, repo_id, *behind, rows)


def _cursor(kind: str, last: Record) -> str:
    return encode(*_QUERIES[kind][2](last))


def _address(name: str, kind: str, cursor: str | None, *, verify: bool) -> str:
    query = ({"cursor": cursor} if cursor else {}) | ({"verify": "true"} if verify else {})
    return page.path_of("scm/repositories", name, kind) + (f"?{urlencode(query)}" if query else "")
