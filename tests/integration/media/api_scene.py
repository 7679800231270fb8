"""A replica's API over a database and an artifact store. Not a test.

A module whose tests use the API much shares `module_scene` among them, and takes `shared_scene` as its scene:
database and artifacts are emptied for each test, and the app remembers nothing of them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from actors.media import DOMAIN
from supervisor.api import create_app
from supervisor.embedded import Urls
from supervisor.store import Store
from tests.integration.media.world import World
from tests.support import door
from tests.support.fake_replica import FakeReplica
from tests.support.lending import Shared
from tests.support.module_place import empty, module_place


@dataclass
class Scene:
    http: httpx.AsyncClient
    world: World
    shelf: Path
    app: Any

    async def get(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> httpx.Response:
        return await self.http.get(f"/api/v1/media{path}", params=query, headers=headers)

    async def post(self, path: str, body: Any) -> httpx.Response:
        return await self.http.post(f"/api/v1/media{path}", json=body)

    async def delete(self, ref: int, **query: Any) -> httpx.Response:
        return await self.http.delete(f"/api/v1/media/refs/{ref}", params=query)

    async def upload(self, content: bytes, name: str = "a.png", **fields: Any) -> httpx.Response:
        files = {"file": (name, content, "application/x-lie")}
        data = {field: str(value) for field, value in fields.items()}
        return await self.http.post("/api/v1/media/blobs", files=files, data=data)

    async def attached(self, content: bytes, role: str = "cover", position: int = 0, **fields: Any) -> Any:
        answer = await self.upload(
            content, workspace="w1", entity="post:7", role=role, position=position, **fields
        )
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    async def story(self, request: UUID | str) -> Any:
        answer = await self.get(f"/requests/{request}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def artifacts(self) -> list[Path]:
        """The contents that are kept."""
        return [path for path in (self.shelf / "media").rglob("*") if path.is_file()]


@asynccontextmanager
async def scene_of(world: World, place: Path, **settings: Any) -> AsyncIterator[Scene]:
    store = Store(world.urls.control, name="api", size=8)
    replica = FakeReplica(store, door.guarded(state_dir=place / ".tenure", **settings))
    app = create_app(replica, [DOMAIN])
    try:
        async with door.client(app) as http:
            yield Scene(http, world, place / ".tenure" / "artifacts", app)
    finally:
        await store.close()


@pytest.fixture(scope="module")
async def module_scene(
    module_database: Shared, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    world = await World.open(module_database.urls)
    with module_place(tmp_path_factory) as place:
        async with scene_of(world, place) as made:
            yield made
    await world.close()


@pytest.fixture
def shared_scene(module_scene: Scene, emptied_database: Urls) -> Scene:
    if module_scene.shelf.exists():
        empty(module_scene.shelf)
    return module_scene
