"""What came of workers that were cut off: completions that came too late, and runs taken from them."""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from supervisor.api.v1.paging import BIGINT, LATEST, SCAN_ROWS, Cursor, Limit, Page, decode, encode, page
from supervisor.api.v1.route import Hanger, answer
from supervisor.api.view import ReplicaView
from supervisor.jobrun import State
from supervisor.sight import Raw
from supervisor.store import Store

INTEGER: Final = 2**31 - 1
LAST_UUID: Final = UUID(int=2**128 - 1)


class LateFinish(BaseModel):
    """A worker ended a run that was not its own any more: refused, and kept."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "claim_id": "7a1c5d0e-3a43-4f6b-9d67-5f7f2b0f6f10",
                "at": "2026-01-31T01:30:00+00:00",
                "run_id": 7,
                "worker_id": "node-1-5f7f2b0f",
                "leader_epoch": 4,
                "state": "SUCCEEDED",
                "result": None,
                "error_code": None,
                "error_message": None,
            }
        }
    )

    claim_id: UUID
    at: datetime
    run_id: int
    worker_id: str
    leader_epoch: int | None
    state: str
    result: Any
    error_code: str | None
    error_message: str | None


class Orphaning(BaseModel):
    """A run was given to a worker that never started it, and taken back."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "at": "2026-01-31T01:30:00+00:00",
                "run_id": 7,
                "version": 3,
                "attempt": 1,
                "worker_id": "node-1-5f7f2b0f",
                "leader_epoch": 4,
                "reason": "WORKER_LOST",
                "state": "SUCCEEDED",
            }
        }
    )

    at: datetime
    run_id: int
    version: int
    attempt: int
    worker_id: str | None
    leader_epoch: int | None
    reason: str | None
    state: State | None = Field(description="what it is now; null where the run was removed since")


class Evidence:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_late_finishes(self, limit: Limit = 50, cursor: Cursor = None) -> Response:
        """Newest first."""
        key = decode(cursor, datetime, UUID, str) if cursor is not None else (LATEST, LAST_UUID, "")
        rows = await self._store.rows("list_late_finishes", *key, limit + 1)
        items = [{**row, "result": Raw(row["result"] or "null")} for row in rows]
        return answer(page(items, limit, lambda row: encode(row["at"], row["claim_id"], row["worker_id"])))

    async def list_orphans(self, limit: Limit = 50, cursor: Cursor = None) -> Response:
        """Newest first, out of the history, and what has become of each. Orphans are rare: a page can be
        short, or empty, and has a `next` all the same. Those of now: `GET /runs?state=ORPHANED`."""
        key = decode(cursor, datetime, int, int) if cursor is not None else (LATEST, BIGINT, INTEGER)
        at, run_id, version = key[0], key[1], min(key[2], INTEGER)
        rows = await self._store.rows("list_orphanings", at, run_id, version, limit + 1, SCAN_ROWS)
        shown = page(rows, limit, lambda row: encode(row["at"], row["run_id"], row["version"]))
        if shown["next"] is None:
            end = await self._store.row("find_history_end", at, run_id, version, SCAN_ROWS)
            shown["next"] = encode(*end) if end is not None else None
        return answer(shown)


def routes(replica: ReplicaView) -> APIRouter:
    evidence, hanger = Evidence(replica.store), Hanger("evidence")
    hanger.add("GET", "/late-finishes", evidence.list_late_finishes, Page[LateFinish],
               "List completions that came too late", 400)  # fmt: skip
    hanger.add("GET", "/orphans", evidence.list_orphans, Page[Orphaning],
               "List runs that were taken from workers", 400)  # fmt: skip
    return hanger.router
