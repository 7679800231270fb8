"""The replicas as workers, and who of them leads and led."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from supervisor import operations
from supervisor.api.principal import Actor, Role
from supervisor.api.v1.paging import BIGINT, Cursor, Limit, Page, decode, encode, page
from supervisor.api.v1.route import TEXT, Hanger, answer
from supervisor.api.view import ReplicaView
from supervisor.config import Timings
from supervisor.status import contact
from supervisor.store import Store

WorkerId = Annotated[str, Path(max_length=200, pattern=TEXT, description="from `GET /workers`")]


class Worker(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "worker_id": "node-1-5f7f2b0f",
                "state": "active",
                "contact": "heard",
                "domains": ["command"],
                "slots": 4,
                "stop_bound_seconds": 7,
                "drain_requested_at": None,
                "first_seen_at": "2026-01-31T01:00:00+00:00",
                "heartbeat_at": "2026-01-31T01:30:00+00:00",
                "heartbeat_age_seconds": 0.4,
                "claims": 2,
            }
        }
    )

    worker_id: str
    state: Literal["active", "draining", "gone"] = Field(description="what it last said of itself")
    contact: Literal["heard", "silent"] = Field(
        description="silent: no beat for C, after which its runs are asked about; so is one that was killed"
    )
    domains: list[str]
    slots: int
    stop_bound_seconds: float = Field(description="within this its work stops for certain when it is cut off")
    drain_requested_at: datetime | None
    first_seen_at: datetime
    heartbeat_at: datetime
    heartbeat_age_seconds: float
    claims: int = Field(description="runs it has been given and has not ended")


class DrainAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"example": {"worker_id": "node-1-5f7f2b0f", "state": "active", "requested": True}}
    )

    worker_id: str
    state: Literal["active", "draining", "gone"]
    requested: bool = Field(description="false where it had been asked before")


class Term(BaseModel):
    """The lease of now. `worker_id` is null, and `live` false, while nobody leads."""

    model_config = ConfigDict(extra="allow")

    epoch: int
    live: bool
    worker_id: str | None
    last_holder: str | None
    since: datetime | None
    expires_at: datetime | None
    renewed_at: datetime | None
    lease_remaining_seconds: float | None
    resigning: bool
    quarantine_until: datetime | None


class Tenure(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "epoch": 4,
                "holder": "node-1-5f7f2b0f",
                "acquired_at": "2026-01-31T01:00:00+00:00",
                "timeline": 1,
                "ended": "RESIGNED",
                "resigned_at": "2026-01-31T02:00:00+00:00",
                "reason": "drain",
                "succeeded_at": "2026-01-31T02:00:00.3+00:00",
                "gap_seconds": 0.2,
                "gap_at_most_seconds": None,
                "last_renewed_at": None,
            }
        }
    )

    epoch: int
    holder: str
    acquired_at: datetime
    timeline: int | None
    ended: Literal["LEADS", "RESIGNED", "EXPIRED"]
    resigned_at: datetime | None
    reason: str | None
    succeeded_at: datetime | None = Field(description="when the next one began")
    gap_seconds: float | None = Field(
        description="how long nobody led before it; null where the one before ended without a word"
    )
    gap_at_most_seconds: float | None = Field(
        description="where the one before ended without a word: since its last renewal"
    )
    last_renewed_at: datetime | None = Field(
        description="of one that ended without a word; null where nobody noted it"
    )


class Leadership(Page[Tenure]):
    current: Term


class ResignAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": {"epoch": 4, "worker_id": "node-1-5f7f2b0f"}})

    epoch: int
    worker_id: str


class Fleet:
    def __init__(self, store: Store, timings: Timings) -> None:
        self._store = store
        self._timings = timings

    async def list_workers(
        self,
        limit: Limit = 50,
        cursor: Cursor = None,
        every: Annotated[bool, Query(alias="all", description="also those that are gone")] = False,
    ) -> Response:
        """By id: who was heard within the hour, or is named by a run."""
        after = decode(cursor, str)[0] if cursor is not None else ""
        rows = await self._store.rows("list_workers_page", after, limit + 1, every)
        bound = self._timings.confirm_after
        shown = [{**row, "contact": contact(row["heartbeat_age_seconds"], bound)} for row in rows]
        return answer(page(shown, limit, lambda row: encode(row["worker_id"])))

    async def drain_worker(self, worker_id: WorkerId, who: Actor) -> Response:
        """It takes no more work, ends or gives back what it has, and exits. Refused when it is gone."""
        return answer(await operations.drain(self._store, who, worker_id))

    async def show_leadership(self, limit: Limit = 50, cursor: Cursor = None) -> Response:
        """Who leads, and who led, newest first, with the gaps between."""
        before = decode(cursor, int)[0] if cursor is not None else BIGINT
        current: Any = await self._store.row("show_leader")
        rows = await self._store.rows("list_tenures_page", before, limit + 1)
        term = {name: value for name, value in current.items() if name != "now"}
        return answer({"current": term, **page(rows, limit, lambda row: encode(row["epoch"]))})

    async def resign_leadership(self, who: Actor) -> Response:
        """The leader steps down, and another replica takes over with the next epoch; where there is one
        replica only, it leads again. Refused when nobody leads."""
        return answer(await operations.resign(self._store, who))


def routes(replica: ReplicaView) -> APIRouter:
    fleet, workers, leadership = (
        Fleet(replica.store, replica.settings.timings),
        Hanger("workers"),
        Hanger("leadership"),
    )
    workers.add("GET", "/workers", fleet.list_workers, Page[Worker], "List replicas", 400)
    workers.add("POST", "/workers/{worker_id}/drain", fleet.drain_worker, DrainAnswer, "Drain a replica",
                400, 404, 409, role=Role.OPERATE)  # fmt: skip
    leadership.add("GET", "/leadership", fleet.show_leadership, Leadership, "Show who leads and led", 400)
    leadership.add("POST", "/leadership/resign", fleet.resign_leadership, ResignAnswer,
                   "Make the leader resign", 409, role=Role.ADMIN)  # fmt: skip
    router = APIRouter()
    router.include_router(workers.router)
    router.include_router(leadership.router)
    return router
