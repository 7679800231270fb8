"""The figures of the whole database: the answer of `tenure status` and `/status`, the source of metrics.

Runs in live states are counted exactly, over their partial index. Runs that have ended are counted among
those created within the last 24 hours, and of these among the newest ENDED_LIMIT only: so the answer costs
the same however long the history grows. A figure of ended runs is therefore recent activity, not a total.
The lists of confirming and orphaned runs hold the first LIST_LIMIT; `Figures.confirming` counts all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import anyio

from supervisor.clock import Clock
from supervisor.config import Timings
from supervisor.jobrun import STATES
from supervisor.lease import Lease
from supervisor.lease_sql import render
from supervisor.store import Store

ENDED_LIMIT: Final = 100_000
LIST_LIMIT: Final = 1000
CACHE_SECONDS: Final = 5.0
CONFIRM_AFTER: Final = Timings().confirm_after


@dataclass(frozen=True, slots=True)
class Figures:
    """`status` in the pinned shape, ready for JSON; `runs` by (domain, state), as the metrics want them."""

    status: dict[str, Any]
    runs: Mapping[tuple[str, str], int]
    confirming: int


def contact(heartbeat_age_seconds: float, confirm_after_seconds: float) -> Literal["heard", "silent"]:
    """A replica that was killed cannot say so: its stored state stays what it last said of itself."""
    return "heard" if heartbeat_age_seconds < confirm_after_seconds else "silent"


async def read_status(
    store: Store, leases: Sequence[Lease] = (), confirm_after_seconds: float = CONFIRM_AFTER
) -> dict[str, Any]:
    return (await read_figures(store, leases, confirm_after_seconds)).status


async def read_figures(
    store: Store, leases: Sequence[Lease] = (), confirm_after_seconds: float = CONFIRM_AFTER
) -> Figures:
    leader = await store.row("read_leader")
    replicas = await store.rows("list_replicas", False)
    live = await store.rows("count_live_runs")
    ended = await store.rows("count_ended_runs", ENDED_LIMIT)
    domains = await store.rows("list_domains")
    confirming = await store.rows("list_confirming", LIST_LIMIT)
    orphaned = await store.rows("list_orphaned", LIST_LIMIT)

    runs = {(row["domain"], row["state"]): row["runs"] for row in (*live, *ended)}
    totals = dict.fromkeys(map(str, STATES), 0)
    for (_, state), count in runs.items():
        totals[state] += count
    lag = {row["domain"]: 0.0 for row in domains}
    for row in live:
        lag[row["domain"]] = max(lag.get(row["domain"], 0.0), _rounded(row["lag_seconds"] or 0.0))
    return Figures(
        status={
            "leader": leader
            and {
                "worker_id": leader["worker_id"],
                "epoch": leader["epoch"],
                "since": leader["since"].isoformat(),
                "lease_remaining_seconds": _rounded(leader["lease_remaining_seconds"]),
            },
            "replicas": [
                {
                    "worker_id": row["worker_id"],
                    "state": row["state"],
                    "contact": contact(row["heartbeat_age_seconds"], confirm_after_seconds),
                    "domains": list(row["domains"]),
                    "heartbeat_age_seconds": _rounded(row["heartbeat_age_seconds"]),
                    "claims": row["claims"],
                }
                for row in replicas
            ],
            "runs": totals,
            "lag_seconds": lag,
            "leases": await _count_leases(store, leases),
            "confirming": [
                {
                    "id": row["id"],
                    "worker_id": row["worker_id"],
                    "deadline_at": row["deadline_at"].isoformat(),
                }
                for row in confirming
            ],
            "orphaned": [
                {"id": row["id"], "since": row["since"] and row["since"].isoformat()} for row in orphaned
            ],
        },
        runs=runs,
        confirming=confirming[0]["total"] if confirming else 0,
    )


async def _count_leases(store: Store, leases: Sequence[Lease]) -> dict[str, dict[str, int]]:
    """By table; several contracts of one table are added up."""
    counts = {lease.table: {"held": 0, "expired": 0} for lease in leases}
    for lease in leases:
        for name, count in dict((await store.rows(render(lease).count))[0]).items():
            counts[lease.table][name] += count
    return counts


def _rounded(seconds: float) -> float:
    return round(max(0.0, seconds), 3)


class StatusCache:
    """One read of the database every few seconds, however many ask; whoever comes meanwhile waits for it."""

    def __init__(
        self,
        store: Store,
        leases: Sequence[Lease] = (),
        *,
        confirm_after_seconds: float = CONFIRM_AFTER,
        clock: Clock | None = None,
        seconds: float = CACHE_SECONDS,
    ) -> None:
        self._store = store
        self._leases = leases
        self._confirm_after_seconds = confirm_after_seconds
        self._clock = clock or Clock()
        self._seconds = seconds
        self._lock = anyio.Lock()
        self._figures: Figures | None = None
        self._read_at = 0.0

    async def figures(self) -> Figures:
        async with self._lock:
            if self._figures is None or self._clock.now() - self._read_at >= self._seconds:
                begun = self._clock.now()
                self._figures = await read_figures(self._store, self._leases, self._confirm_after_seconds)
                self._read_at = begun
            return self._figures

    async def status(self) -> dict[str, Any]:
        return (await self.figures()).status
