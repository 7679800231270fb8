"""The figures of syncs for Prometheus, by the names the alerts know.

They are of the database, so every replica shows the same: read them with `max by (repo_id, source_type)`. No
label comes from what somebody typed: a repository is its number. What nobody knows yet is not shown rather
than shown as 0: an alert on it would never fire, and a gap is seen.

- scm_sync_lag_seconds: how far the cursor is behind the newest that the source had when last looked at
- scm_sync_batch_duration: seconds that the newest batch of the newest ended run took
- scm_sync_error_rate: share of failed and exhausted runs among the newest ones, 0 to 1
- scm_sync_pending_repos: repositories with a sync that waits to be worked on
- scm_cursor_age_seconds: since the cursor was last written
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from supervisor.store import Record, Store

__all__ = ["register"]

LABELS: Final = ("repo_id", "source_type")
READ_SECONDS: Final = 10.0


def register(registry: CollectorRegistry) -> Callable[[Store], Awaitable[None]]:
    """Their places in the registry, and what brings them up to date."""
    gauges = {
        column: Gauge(name, text, LABELS, registry=registry)
        for column, name, text in (
            ("lag_seconds", "scm_sync_lag_seconds", "Time between the source's newest and the cursor"),
            ("last_batch_seconds", "scm_sync_batch_duration", "Seconds of the newest batch"),
            ("error_rate", "scm_sync_error_rate", "Share of the newest runs that failed"),
            ("cursor_age_seconds", "scm_cursor_age_seconds", "Since the cursor was written"),
        )
    }
    pending = Gauge("scm_sync_pending_repos", "Repositories with a sync that waits", registry=registry)

    async def update(store: Store) -> None:
        rows = await store.rows("read_scm_metrics", timeout=READ_SECONDS)
        for column, gauge in gauges.items():
            _show(gauge, column, rows)
        pending.set(len({row["repo_id"] for row in rows if row["is_pending"]}))

    return update


def _show(gauge: Gauge, column: str, rows: Sequence[Record]) -> None:
    gauge.clear()  # a repository that was removed is no longer shown
    for row in rows:
        if row[column] is not None:
            gauge.labels(str(row["repo_id"]), row["source_type"]).set(row[column])
