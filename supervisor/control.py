"""What a replica does with the control login: its elections, and the figures of the whole database.

A replica that only works (`tenure up --no-lead`) does not hold that login and has none of this.
"""

from collections.abc import Sequence
from typing import Any, Final

import anyio

from supervisor.config import Settings
from supervisor.domain import Domain
from supervisor.domain_figures import keep_domain_figures, register_figures
from supervisor.errors import TenureError
from supervisor.lease import Lease
from supervisor.logs import logger
from supervisor.memory import Memory
from supervisor.metrics import Metrics
from supervisor.status import Figures, StatusCache
from supervisor.store import Store

FIGURES_SECONDS: Final = 5.0

_log = logger("control")


class Control:
    def __init__(
        self,
        url: str,
        worker_id: str,
        settings: Settings,
        memory: Memory,
        metrics: Metrics,
        leases: Sequence[Lease],
        domains: Sequence[Domain],
    ) -> None:
        pooled, name = settings.pooler == "transaction", f"tenure/{worker_id}"
        self.store = Store(url, name=name, pooled=pooled, memory=memory)
        # renewals wait for nobody, and domains' duties that stall keep nobody else waiting
        self.term_store = Store(url, name=f"{name}/term", size=1, pooled=pooled, memory=memory)
        self.duty_store = Store(url, name=f"{name}/duty", size=2, pooled=pooled, memory=memory)
        self._metrics = metrics
        confirm_after = settings.timings.confirm_after
        self._figures = StatusCache(self.store, leases, confirm_after_seconds=confirm_after)
        self._domain_figures = register_figures(domains, metrics.registry)

    async def status(self) -> dict[str, Any]:
        return await self._figures.status()

    async def keep_figures(self) -> None:
        """Show the figures of the whole database. Every candidate shows them: read them with `max by`."""
        async with anyio.create_task_group() as group:
            group.start_soon(keep_domain_figures, self._domain_figures, self.store)
            while True:
                try:
                    show_figures(self._metrics, await self._figures.figures())
                except TenureError as error:
                    _log.info("no figures", reason=str(error))
                await anyio.sleep(FIGURES_SECONDS)

    async def close(self) -> None:
        for store in (self.store, self.term_store, self.duty_store):
            await store.close()


def show_figures(metrics: Metrics, figures: Figures) -> None:
    leader = figures.status["leader"]
    metrics.lease_remaining.set(leader["lease_remaining_seconds"] if leader else 0)
    metrics.confirming.set(figures.confirming)
    metrics.runs.clear()
    for (domain, state), count in figures.runs.items():
        metrics.runs.labels(domain, state).set(count)
    for domain, seconds in figures.status["lag_seconds"].items():
        metrics.run_lag.labels(domain).set(seconds)
    for table, rows in figures.status["leases"].items():
        metrics.leases_expired.labels(table).set(rows["expired"])
