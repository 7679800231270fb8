"""A console without a replica around it: the routes over a database of the test's own. Not a test."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from supervisor.api import create_app, serve
from supervisor.config import Settings
from supervisor.domain import Domain
from supervisor.embedded import Urls
from supervisor.metrics import Metrics
from supervisor.status import StatusCache
from supervisor.store import Store
from tests.support.door import guarded


@dataclass
class View:
    """What the pages see of a replica."""

    store: Store
    settings: Settings
    worker_id: str = "host-00000000-0000-4000-8000-000000000000"
    draining: bool = False
    metrics: Metrics = field(default_factory=Metrics)

    async def status(self) -> dict[str, Any]:
        return await StatusCache(self.store).status()


@asynccontextmanager
async def booth(urls: Urls, domains: Sequence[Domain] = (), **settings: Any) -> AsyncIterator[str]:
    """Its address."""
    store = Store(urls.control, name="test", size=4)
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    view = View(store, guarded(**settings))
    app = create_app(view, domains)
    serving = asyncio.create_task(serve(app, "127.0.0.1", 0, listening.set_result))
    try:
        yield f"http://127.0.0.1:{await listening}"
    finally:
        view.draining = True  # ends what streams
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        await store.close()
