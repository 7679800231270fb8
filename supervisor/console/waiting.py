"""Why each run of a list waits, in a word or two; its page has the whole answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from supervisor.config import Timings
from supervisor.store import Record, Store
from supervisor.why import Reason, explain_all

WAITS: Final = frozenset({"PENDING", "ASSIGNED", "ORPHANED"})
SHORT: Final[Mapping[str, str]] = {
    "CANCEL_REQUESTED": "to be cancelled",
    "NOT_DUE": "due",
    "RETRY_BACKOFF": "back-off, due",
    "JOB_DISABLED": "job disabled",
    "DOMAIN_PAUSED": "domain paused",
    "NO_LEADER": "nobody leads",
    "QUARANTINE": "database failed over",
    "AWAITING_QUIESCE": "attempt before may still run",
    "CONCURRENCY_LIMIT": "job at its limit",
    "NO_REPLICA": "no replica for it",
    "NO_FREE_SLOT": "no free slot",
    "IN_LINE": "in line",
    "AWAITING_START": "about to start",
    "WORKER_SILENT": "replica not heard",
    "ASSIGNED_BEFORE_FAILOVER": "database failed over",
}
TIMED: Final = frozenset({"NOT_DUE", "RETRY_BACKOFF"})
"""Their words go on with a time."""


@dataclass(frozen=True, slots=True)
class Short:
    code: str
    text: str
    sentence: str
    at: datetime | None


async def reasons(store: Store, rows: Sequence[Record], timings: Timings) -> dict[int, Short]:
    """By the run's number; one set of questions for all of them, and none where nothing waits."""
    waiting = [row["id"] for row in rows if row["state"] in WAITS]
    found = await explain_all(store, waiting, timings, counted=False) if waiting else {}
    return {run_id: short(why.reason) for run_id, why in found.items() if why.reason.code in SHORT}


def short(reason: Reason) -> Short:
    at = reason.until if reason.code in TIMED else None
    return Short(reason.code, SHORT[reason.code], reason.sentence, at)
