"""Repositories, and the evidence that there is of each."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from actors.scm.api.models import EvidenceListed, RepoName, Repository, shown
from actors.scm.api.refusals import Route, documented
from supervisor.api.v1.paging import Cursor, Limit, Page, decode, encode, page
from supervisor.api.view import ReplicaView
from supervisor.errors import NotFound

READ_SECONDS = 60.0


class Repos:
    def __init__(self, view: ReplicaView) -> None:
        self._store = view.store

    async def list(self, limit: Limit = 50, cursor: Cursor = None) -> dict[str, Any]:
        """By name."""
        (after,) = decode(cursor, str) if cursor is not None else ("",)
        rows = await self._store.rows("page_repos", after, limit + 1)
        return page([shown(row, "config_json") for row in rows], limit, lambda row: encode(row["name"]))

    async def show(self, name: RepoName) -> dict[str, Any]:
        """One repository, and how much of it was read."""
        row = await self._store.row("read_repo", name, timeout=READ_SECONDS)
        if row is None:
            raise NotFound(kind="repo", name=name)
        return shown(row, "config_json")

    async def evidence(
        self,
        name: RepoName,
        record: Annotated[
            str | None,
            Query(pattern=r"^(0|[1-9][0-9]{0,17}|[0-9a-f]{40}|[0-9a-f]{64})$", description="Of one record."),
        ] = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> dict[str, Any]:
        """The stored diffs of its revisions or commits, or that of one of them."""
        (after,) = decode(cursor, int) if cursor is not None else (0,)
        rows = await self._store.rows("page_evidence", name, record, after, limit + 1)
        if not rows and await self._store.row("read_repo_id", name) is None:
            raise NotFound(kind="repo", name=name)
        return page([dict(row) for row in rows], limit, lambda row: encode(row["id"]))


def routes(view: ReplicaView) -> APIRouter:
    repos, router = Repos(view), APIRouter(prefix="/repos", route_class=Route)
    router.add_api_route(
        "",
        repos.list,
        methods=["GET"],
        response_model=Page[Repository],
        summary="List repositories",
        responses=documented(),
    )
    router.add_api_route(
        "/{name}",
        repos.show,
        methods=["GET"],
        response_model=Repository,
        summary="Show a repository",
        responses=documented(404),
    )
    router.add_api_route(
        "/{name}/evidence",
        repos.evidence,
        methods=["GET"],
        response_model=Page[EvidenceListed],
        summary="List the evidence of a repository",
        responses=documented(404),
    )
    return router
