"""Finding the runs of a page. Each way reads a bounded piece of the table, however long the history is.

A root has few attempts, with an index. What has not ended is found by the indexes of live states, as long as
there is not too much of it. Everything else is a walk down the ids over SCAN_ROWS at most: a page may be
short then, and its cursor stands where the walk ended.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from supervisor.api.v1.paging import BIGINT, SCAN_ROWS, encode
from supervisor.errors import NotFound
from supervisor.jobrun import LIVE
from supervisor.store import Store


@dataclass(frozen=True, slots=True)
class Wanted:
    """`job_ids`: of all definitions that ever had the name."""

    states: list[str] | None = None
    domain: str | None = None
    job: str | None = None
    worker: str | None = None
    root: int | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_live(self) -> bool:
        return self.states is not None and LIVE.issuperset(self.states)

    @property
    def is_everything(self) -> bool:
        return self == Wanted()


async def find_runs(
    store: Store, wanted: Wanted, before: int | None, limit: int
) -> tuple[list[int], str | None]:
    """The ids of a page, newest first, and the cursor of the next."""
    if wanted.job is not None and not await store.value("find_job", wanted.job):
        raise NotFound(kind="job", name=wanted.job)
    highest, lowest = await _bounds(store, wanted, before)
    arguments = (
        highest,
        lowest,
        SCAN_ROWS,
        limit + 1,
        wanted.states,
        wanted.domain,
        await store.value("find_job_ids", wanted.job) if wanted.job is not None else None,
        wanted.worker,
        wanted.since,
        wanted.until,
    )
    if wanted.root is not None:
        return _page(
            [row["id"] for row in await store.rows("find_root_runs", *arguments, wanted.root)], limit
        )
    if wanted.is_live:
        row = await store.row("find_live_runs", *arguments)
        if row is not None and row["found"] < SCAN_ROWS:
            return _page(row["ids"], limit)
    ids = [row["id"] for row in await store.rows("find_recent_runs", *arguments)]
    if len(ids) > limit or wanted.is_everything:
        return _page(ids, limit)
    end = await store.value("find_walk_end", highest, lowest, SCAN_ROWS)
    return ids, encode(end) if end is not None else None


def _page(ids: list[int], limit: int) -> tuple[list[int], str | None]:
    shown = ids[:limit]
    return shown, encode(shown[-1]) if len(ids) > limit else None


async def _bounds(store: Store, wanted: Wanted, before: int | None) -> tuple[int, int]:
    """Below the first, not below the second."""
    highest, lowest = before if before is not None else BIGINT, 0
    if wanted.since is None and wanted.until is None:
        return highest, lowest
    row: Any = await store.row("find_runs_bounds", wanted.since, wanted.until)
    if wanted.until is not None:
        highest = min(highest, (row["highest"] or 0) + 1)
    if wanted.since is not None:
        lowest = row["lowest"] if row["lowest"] is not None else highest
    return highest, lowest
