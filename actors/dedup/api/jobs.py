"""Jobs: asked for, listed, cancelled, tried again. The work itself is done by whoever claims it."""

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Body, Query, status

from actors.dedup.api.cursors import InvalidCursor, parse_group_key, parse_job_cursor
from actors.dedup.api.job_models import (
    DeleteRequest,
    Job,
    JobPage,
    JobRequest,
    JobWithMoves,
    Kind,
    Recovered,
    Status,
)
from actors.dedup.api.models import Cursor, ShortPageLimit, page_of
from actors.dedup.api.refusals import Route, documented
from actors.dedup.api.worker import SCAN_HASH
from supervisor.api.principal import Actor
from supervisor.api.view import ReplicaView
from supervisor.errors import NotFound
from supervisor.lease_sql import render
from supervisor.store import Record, Store

MOVES_SHOWN: Final = 200
RECOVERED_AT_ONCE: Final = 500

EXAMPLES: Final = {
    "scan": {"value": {"kind": "scan", "library": "photos"}},
    "hash": {"value": {"kind": "hash", "payload": {"algorithm": "blake3", "mode": "duplicates"}}},
    "thumbnails": {"value": {"kind": "thumbnail", "library": "photos", "payload": {"format": "webp"}}},
    "delete": {"value": {"kind": "delete", "group_key": f"blake3:{'0' * 64}", "keep": 17, "dry_run": True}},
}


class Jobs:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._recover = render(SCAN_HASH).recover_by

    async def request(
        self, actor: Actor, asked: Annotated[JobRequest, Body(openapi_examples=EXAMPLES)]
    ) -> Job:
        """One scan or hash is active at a time: a second one is a conflict. A deletion names its group, and
        is a dry run unless it says otherwise and the setting `dedup_allow_real_delete` permits it."""
        if isinstance(asked, DeleteRequest):
            key = parse_group_key(asked.group_key)
            query = "request_dedup_delete"
            wanted = (key.hash_algorithm, key.content_hash, asked.keep, asked.remove, asked.dry_run)
            return _job(await self._store.row(query, actor, *wanted))
        payload = asked.payload.model_dump_json(exclude_none=True)
        row = await self._store.row(
            "request_dedup_job", actor, asked.kind, asked.library, payload, asked.dry_run
        )
        return _job(row)

    async def list(
        self,
        kind: Annotated[Kind | None, Query()] = None,
        status: Annotated[Status | None, Query()] = None,
        limit: ShortPageLimit = 50,
        cursor: Cursor = None,
    ) -> JobPage:
        """The newest first. The cursor is the id of the last job of the page before."""
        after = None if cursor is None else parse_job_cursor(cursor)
        created_at = None
        if after is not None:
            created_at = await self._store.value("find_dedup_job", after)
            if created_at is None:
                raise InvalidCursor(what="its job is no longer there")
        rows = await self._store.rows("list_dedup_jobs", kind, status, created_at, after, limit + 1)
        return page_of(JobPage, rows, limit, lambda row: str(row["id"]))

    async def read(self, job_id: UUID) -> JobWithMoves:
        """One job, with its moves: by whom and why."""
        row = await self._store.row("read_dedup_job", job_id)
        if row is None:
            raise NotFound(kind="job", name=job_id)
        moves = await self._store.rows("list_dedup_moves", job_id, MOVES_SHOWN)
        return JobWithMoves.model_validate({**row, "moves": [dict(move) for move in reversed(moves)]})

    async def cancel(self, actor: Actor, job_id: UUID) -> Job:
        """Its worker finds out with its next heartbeat, and stops."""
        return _job(await self._store.row("cancel_dedup_job", actor, job_id))

    async def reset(self, actor: Actor, job_id: UUID) -> Job:
        """A retryable job goes back to pending before its time."""
        return _job(await self._store.row("reset_dedup_job", actor, job_id))

    async def recover_stale(self, actor: Actor) -> Recovered:
        """Scans and hashes whose lease ran out become retryable, as the next claim would make them."""
        rows = await self._store.rows(self._recover, RECOVERED_AT_ONCE, actor)
        return Recovered(recovered=[row["id"] for row in rows])


def _job(row: Record | None) -> Job:
    if row is None:
        raise NotFound(kind="job", name="of that id")
    return Job.model_validate(dict(row))


def routes(view: ReplicaView) -> APIRouter:
    jobs, router = Jobs(view.store), APIRouter(prefix="/jobs", tags=["jobs"], route_class=Route)
    add = router.add_api_route
    add(
        "",
        jobs.request,
        methods=["POST"],
        status_code=status.HTTP_201_CREATED,
        summary="Ask for a job",
        responses=documented(404, 409),
    )
    add("", jobs.list, methods=["GET"], summary="List jobs", responses=documented())
    add(
        "/recover-stale",
        jobs.recover_stale,
        methods=["POST"],
        summary="Take back what nobody works on any more",
        responses=documented(),
    )
    add("/{job_id}", jobs.read, methods=["GET"], summary="Show a job", responses=documented(404))
    for name, what, handler in (
        ("cancel", "Cancel a job", jobs.cancel),
        ("reset", "Try a job again now", jobs.reset),
    ):
        add(
            f"/{{job_id}}/{name}",
            handler,
            methods=["POST"],
            summary=what,
            responses=documented(404, 409),
        )
    return router
