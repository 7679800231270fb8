"""One claim loop at work on a domain's own rows, with a keeper and without a replica."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio

from supervisor import Actor
from supervisor.actor import Place
from supervisor.claim_loop import ClaimLoop
from supervisor.config import Timings, load_settings
from supervisor.embedded import Urls
from supervisor.keeper import Keeper
from supervisor.metrics import Metrics
from supervisor.store import Store
from supervisor.wakeups import Wakeups
from tests.support.slowness import stretch

LEASE_SECONDS = 3.0


class NoTimer:
    """The kernel's timer would end the test run."""

    def arm(self, deadline_boottime: float) -> None: ...

    def disarm(self) -> None: ...


@asynccontextmanager
async def at_work(
    urls: Urls,
    actor: Actor,
    *,
    worker: str = "me",
    through: str = "",
    maintenance: str = "",
    **settings: Any,
) -> AsyncIterator[ClaimLoop]:
    """Leaving it is a kill: what runs is cancelled and nothing is given back."""
    store = Store(through or urls.worker, name=worker)
    upkeep = Store(maintenance or urls.maintenance, name=f"{worker}/upkeep", size=2)
    place = Place(worker, load_settings(**settings), store, upkeep)
    assert actor.lease is not None
    seconds = LEASE_SECONDS * stretch()
    short = replace(actor, lease=replace(actor.lease, lease_seconds=seconds))
    timings = Timings(kill=seconds / 10, stop_bound=seconds)
    loop = ClaimLoop(short, place, 8, timings, NoTimer(), Wakeups(worker), Metrics())
    keeper = Keeper(through or urls.worker, worker, [loop.kept])
    keeper.start()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(loop.run)
            yield loop
            group.cancel_scope.cancel()
    finally:
        keeper.stop()
        await upkeep.close()
        await store.close()
