"""Syncs: where each task stands, and its runs."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from actors.scm.api.models import OfRepo, RunId, SourceType, Status, SyncRun, SyncTask, shown
from actors.scm.api.refusals import Route, documented
from supervisor.api.v1.paging import Cursor, Limit, Page, decode, encode, page
from supervisor.api.view import ReplicaView
from supervisor.errors import NotFound

OfSource = Annotated[SourceType | None, Query(description="Of this source alone.")]
InStatus = Annotated[Status | None, Query(description="Only those.")]


class Syncs:
    def __init__(self, view: ReplicaView) -> None:
        self._store = view.store

    async def tasks(self, repo: OfRepo = None, limit: Limit = 50, cursor: Cursor = None) -> dict[str, Any]:
        """By repository and source: schedule, cursor, lag and the last run of each."""
        after = decode(cursor, str, str) if cursor is not None else ("", "")
        rows = await self._store.rows("page_sync_standing", repo, *after, limit + 1)
        items = [shown(row, "config_json", "cursor", "head_watermark") for row in rows]
        return page(items, limit, lambda row: encode(row["repo"], row["source_type"]))

    async def runs(
        self,
        repo: OfRepo = None,
        source: OfSource = None,
        status: InStatus = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> dict[str, Any]:
        """Newest first."""
        after = decode(cursor, datetime, str) if cursor is not None else (None, None)
        rows = await self._store.rows("list_sync_runs", repo, source, status, *after, limit + 1)
        return page([_run(row) for row in rows], limit, lambda row: encode(row["started_at"], row["run_id"]))

    async def run(self, run_id: RunId) -> dict[str, Any]:
        """One run with its figures, and what went wrong in it."""
        row = await self._store.row("read_sync_run", run_id)
        if row is None:
            raise NotFound(kind="sync run", name=run_id)
        return _run(row)


def _run(row: Any) -> dict[str, Any]:
    return shown(row, "stats_json", "error_json", "watermark_start", "watermark_end")


def routes(view: ReplicaView) -> APIRouter:
    syncs, router = Syncs(view), APIRouter(route_class=Route)
    router.add_api_route(
        "/tasks",
        syncs.tasks,
        methods=["GET"],
        response_model=Page[SyncTask],
        summary="List sync tasks",
        responses=documented(),
    )
    router.add_api_route(
        "/runs",
        syncs.runs,
        methods=["GET"],
        response_model=Page[SyncRun],
        summary="List sync runs",
        responses=documented(),
    )
    router.add_api_route(
        "/runs/{run_id}",
        syncs.run,
        methods=["GET"],
        response_model=SyncRun,
        summary="Show a sync run",
        responses=documented(404),
    )
    return router
