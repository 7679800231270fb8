"""How far a piece of work is, and which look each state has. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from supervisor.store import Record

KINDS: Final[Mapping[str, str]] = {
    "pending": "PENDING",
    "running": "RUNNING",
    "retryable": "warning",
    "completed": "SUCCEEDED",
    "succeeded": "SUCCEEDED",
    "failed": "FAILED",
    "cancelled": "CANCELED",
}
"""The console's states, by those of the tables."""


@dataclass(frozen=True, slots=True)
class Work:
    """`percent` is None as long as nobody knows how much there is."""

    job: Record
    done: int
    whole: int | None

    @property
    def percent(self) -> int | None:
        return min(99, self.done * 100 // self.whole) if self.whole else None


def work_of(job: Record) -> Work:
    """A walk is measured by what the last whole one saw; all else by its own count."""
    if job["kind"] == "scan":
        return Work(job, job["files_seen"] or 0, job["expected"])
    return Work(job, job["processed_items"] or 0, job["total_items"])


def by_library(jobs: Iterable[Record]) -> dict[int | None, list[Work]]:
    """None: work on all of them at once."""
    found: dict[int | None, list[Work]] = {}
    for job in jobs:
        found.setdefault(job["library_id"], []).append(work_of(job))
    return found
