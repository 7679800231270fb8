"""A replica's API and hands to fill its database. Not a test.

The tests of a module share an app, a database and a directory, which are emptied for each: `module_scene`
and one of the two fixtures behind it. The app remembers nothing of a test but that nobody has a token, and
no test of this domain makes one.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from actors.dedup.api import routes
from supervisor.api import create_app
from supervisor.domain import Domain
from supervisor.embedded import Urls
from supervisor.store import Store
from tests.support import door
from tests.support.fake_replica import FakeReplica, LendingReplica
from tests.support.lending import Shared
from tests.support.module_place import empty, module_place
from tests.support.sessions import borrow, give_back

DIGEST = bytes(range(32))
ADD_FILES = """INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns, needs_hash,
                      hash_algorithm, content_hash, hashed_size, hashed_mtime_ns)
               SELECT l.id, x.path, x.size, 1, false, $4, x.digest, x.size, 1
                 FROM dedup.library_roots l,
                      unnest($2::text[], $3::bigint[], $5::bytea[]) AS x (path, size, digest)
                WHERE l.name = $1 RETURNING id"""


@dataclass
class Scene:
    http: httpx.AsyncClient
    admin: "asyncpg.Connection[asyncpg.Record]"
    libraries: Path
    thumbs: Path
    app: Any

    def empty(self) -> None:
        """Remove all files, also those beside the libraries."""
        empty(self.libraries.parent)
        self.libraries.mkdir()

    async def get(self, path: str, **query: Any) -> httpx.Response:
        return await self.http.get(f"/api/v1{path}", params={k: v for k, v in query.items() if v is not None})

    async def post(self, path: str, body: Any = None) -> httpx.Response:
        return await self.http.post(f"/api/v1{path}", json=body)

    async def pages(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """All items, page by page."""
        found: list[dict[str, Any]] = []
        cursor = None
        for _ in range(1000):
            answer = await self.get(path, cursor=cursor, **query)
            assert answer.status_code == 200, answer.text
            found += answer.json()["items"]
            cursor = answer.json()["next_cursor"]
            if cursor is None:
                return found
        raise AssertionError("the pages do not end")

    async def library(self, name: str = "photos") -> str:
        await self.admin.execute("SELECT dedup.add_library('test', $1, $1)", name)
        return name

    async def files(
        self,
        library: str,
        paths: Sequence[str],
        digest: bytes = DIGEST,
        size: int = 10,
        algorithm: str = "blake3",
    ) -> list[int]:
        """Hashed files of one content."""
        sizes, digests = [size] * len(paths), [digest] * len(paths)
        rows = await self.admin.fetch(ADD_FILES, library, list(paths), sizes, algorithm, digests)
        return [row["id"] for row in rows]

    async def setting(self, name: str, value: str) -> None:
        await self.admin.execute(
            "UPDATE supervisor.setting SET value = $2::text::jsonb WHERE name = $1", name, value
        )


@asynccontextmanager
async def scene_of(urls: Urls, place: Path, *, lending: bool = True, **settings: Any) -> AsyncIterator[Scene]:
    libraries, thumbs = place / "libraries", place / "state" / "thumbs"
    libraries.mkdir()
    chosen = {"libraries_dir": libraries, "state_dir": place / "state", "thumbs_dir": thumbs, **settings}
    store, work = Store(urls.control, name="api"), Store(urls.worker, name="work", size=4)
    replica = (
        LendingReplica(store, door.guarded(**chosen), work_store=work)
        if lending
        else FakeReplica(store, door.guarded(**chosen))
    )
    app = create_app(replica, [Domain(name="dedup", routes=routes)])
    admin = await borrow(urls.admin)
    try:
        async with door.client(app) as http:
            yield Scene(http, admin, libraries, thumbs, app)
    finally:
        await give_back(admin)
        await store.close()
        await work.close()


@pytest.fixture(scope="module")
async def module_scene(
    module_database: Shared, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    with module_place(tmp_path_factory) as place:
        async with scene_of(module_database.urls, place) as made:
            yield made


@pytest.fixture
def empty_scene(module_scene: Scene, emptied_database: Urls) -> Scene:
    module_scene.empty()
    return module_scene


@pytest.fixture
async def library_scene(module_scene: Scene, emptied_database: Urls) -> Scene:
    module_scene.empty()
    await module_scene.library()
    return module_scene


def is_problem(answer: httpx.Response, status: int, code: str) -> bool:
    """A refusal in the form that all of them have."""
    facts = (answer.status_code, answer.headers["content-type"], answer.json().get("code"))
    assert facts == (status, "application/problem+json", code), answer.text
    return True
