"""A replica as the routes see it, without one that runs."""

from dataclasses import dataclass, field
from typing import Any

from supervisor.config import Settings
from supervisor.metrics import Metrics
from supervisor.status import StatusCache
from supervisor.store import Store


@dataclass
class FakeReplica:
    store: Store
    settings: Settings
    worker_id: str = "w1"
    draining: bool = False
    metrics: Metrics = field(default_factory=Metrics)

    async def status(self) -> dict[str, Any]:
        return await StatusCache(self.store).status()


@dataclass
class LendingReplica(FakeReplica):
    """One that lends out the rights of its worker, as a real one does, and so has a worker's routes."""

    work_store: Store = field(kw_only=True)
