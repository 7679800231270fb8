"""A replica's API over a database and an artifact store. Not a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from actors.capture import DOMAIN
from supervisor.api import create_app
from supervisor.store import Store
from tests.integration.capture.world import World
from tests.support import door
from tests.support.fake_replica import FakeReplica


@dataclass
class Scene:
    http: httpx.AsyncClient
    world: World
    shelf: Path

    async def get(self, path: str, **query: Any) -> httpx.Response:
        return await self.http.get(f"/api/v1{path}", params=query)

    async def submit(self, *pictures: bytes, user: object = 7, **fields: Any) -> httpx.Response:
        files = [("images", ("../../a.png", content, "text/html")) for content in pictures]
        data = {"user": str(user), **{name: str(value) for name, value in fields.items()}}
        return await self.http.post("/api/v1/capture/sessions", files=files or None, data=data)

    def artifacts(self) -> list[Path]:
        """The pictures that are kept."""
        return [path for path in (self.shelf / "capture").rglob("*") if path.is_file()]


@asynccontextmanager
async def scene_of(world: World, place: Path) -> AsyncIterator[Scene]:
    store = Store(world.urls.control, name="api", size=4)
    app = create_app(FakeReplica(store, door.guarded(state_dir=place / ".tenure")), [DOMAIN])
    try:
        async with door.client(app) as http:
            yield Scene(http, world, place / ".tenure" / "artifacts")
    finally:
        await store.close()
