"""The worker's part of the protocol over HTTP: claim, heartbeat, finish. For workers outside of this product.

These are the statements of the lease contract itself, with the rights of the worker's role: what they write
the database permits, and nothing else. The claim's token (`claim_id`) is told once, to whoever claimed; with
the worker's name it is what a heartbeat and an ending are known by. Scans and hashes only.
"""

import json
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, Protocol, runtime_checkable
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from actors.dedup import leases
from actors.dedup.api.job_models import EXAMPLE_JOB, Job
from actors.dedup.api.models import Body, Count, Prose
from actors.dedup.api.refusals import Route, documented
from supervisor.api.principal import Actor
from supervisor.api.view import ReplicaView
from supervisor.errors import Conflict, NotFound
from supervisor.lease import Lease
from supervisor.lease_sql import Statement, render
from supervisor.store import Record, Store

DOMAIN: Final = "dedup"
SCAN_HASH: Final = replace(leases.SCAN, label="scan-hash", only="t.kind IN ('scan', 'hash')")

WorkerName = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,128}$")]
Part = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]


@runtime_checkable
class WorkerView(Protocol):
    """A replica that lends out the rights of its worker."""

    @property
    def work_store(self) -> Store: ...


class ClaimRequest(Body):
    worker_id: WorkerName


class Owned(Body):
    worker_id: WorkerName
    claim_id: UUID


class Heartbeat(Owned):
    processed_items: Count | None = None
    progress: Part | None = None


class Ending(Owned):
    status: Literal["completed", "failed"]
    progress: Part | None = None
    error_code: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")] | None = None
    error_message: Prose | None = None

    @model_validator(mode="after")
    def _says_why(self) -> "Ending":
        if (self.status == "failed") != (self.error_code is not None):
            raise ValueError("a failure has an error_code, and nothing else has")
        return self


class Claimed(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {"claim_id": EXAMPLE_JOB["id"], "lease_seconds": 60, "job": EXAMPLE_JOB}
        }
    )

    claim_id: UUID = Field(description="the token: keep it, it is not told again")
    lease_seconds: float = Field(description="a heartbeat is due well within it")
    job: Job


class NoWork(NotFound):
    """no {kind} to be claimed"""


class Worker:
    def __init__(self, store: Store, work_store: Store, lease: Lease) -> None:
        self._store, self._work_store, self._lease = store, work_store, lease
        self._statements = render(lease)

    async def claim(self, actor: Actor, asked: ClaimRequest) -> Claimed:
        """The oldest pending scan or hash; one whose lease ran out is made retryable first."""
        rows = await self._work_store.rows(self._statements.claim, asked.worker_id, 1, DOMAIN)
        _recovered, job_id, token, *_ = rows[0]
        if job_id is None:
            raise NoWork(kind="scan or hash", name="")
        await self._note(actor, "claim", job_id, asked.worker_id)
        job = await self._job(job_id)
        return Claimed(claim_id=token, lease_seconds=self._lease.lease_seconds, job=job)

    async def heartbeat(self, job_id: UUID, beat: Heartbeat) -> Job:
        """Extends the lease of its owner. Whoever is refused stops at once: the job is another's, or over."""
        facts = {"processed_items": beat.processed_items, "progress": beat.progress}
        if not await self._run(self._statements.beat, job_id, beat, facts):
            await self._job(job_id)
            raise Conflict(what=f"job {job_id} is not held under this claim")
        return await self._job(job_id)

    async def finish(self, actor: Actor, job_id: UUID, ending: Ending) -> Job:
        """Recorded once; the same report again is answered with what was recorded."""
        path = "done" if ending.status == "completed" else "cancel"
        facts = {
            "progress": 1.0 if ending.progress is None else ending.progress,
            "tenure_code": ending.error_code,
            "tenure_message": ending.error_message,
            "tenure_after": None,
        }
        await self._job(job_id)
        await self._note(actor, "finish", job_id, ending.worker_id, asked=ending.status)
        rows = await self._run(self._statements.finish[path], job_id, ending, facts)
        job = await self._job(job_id)
        if rows[0]["answer"] == "SUPERSEDED" or job.status != ending.status:
            raise Conflict(what=f"job {job_id} is not held under this claim: it is {job.status}")
        return job

    async def _run(
        self, statement: Statement, job_id: UUID, owned: Owned, facts: dict[str, Any]
    ) -> list[Record]:
        extras = [[facts[name]] for name in statement.extras]
        return list(
            await self._work_store.rows(statement, owned.worker_id, [job_id], [owned.claim_id], *extras)
        )

    async def _note(self, actor: str, what: str, job_id: UUID, worker_id: str, **facts: str) -> None:
        """Before it counts: a claim whose note failed is not told, and an end is not recorded."""
        said = json.dumps({"worker_id": worker_id, **facts})
        await self._store.value("note_dedup_work", actor, what, job_id, said)

    async def _job(self, job_id: UUID) -> Job:
        row = await self._store.row("read_dedup_job", job_id)
        if row is None:
            raise NotFound(kind="job", name=job_id)
        return Job.model_validate(dict(row))


def routes(view: ReplicaView, work_store: Store) -> APIRouter:
    seconds = max(SCAN_HASH.lease_seconds, view.settings.stop_bound_seconds)
    worker = Worker(view.store, work_store, replace(SCAN_HASH, lease_seconds=seconds))
    router = APIRouter(prefix="/jobs", tags=["worker protocol"], route_class=Route)
    for path, handler, what, statuses in (
        ("/scan-hash/claim", worker.claim, "Claim a scan or hash", (404,)),
        ("/{job_id}/heartbeat", worker.heartbeat, "Extend the lease of a job", (404, 409)),
        ("/{job_id}/finish", worker.finish, "End a job", (404, 409)),
    ):
        router.add_api_route(path, handler, methods=["POST"], summary=what, responses=documented(*statuses))
    return router
