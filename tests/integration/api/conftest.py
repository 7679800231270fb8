"""A replica's API and a scene to fill its database: `api` is the test's own, `shared_api` the module's.

A test that makes a token, lets the replica drain or follows a stream needs its own: the app remembers that.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from fastapi import FastAPI

from supervisor.api import create_app, serve
from supervisor.embedded import Urls
from supervisor.store import Store
from tests.support import door
from tests.support.fake_replica import FakeReplica
from tests.support.lending import Shared
from tests.support.module_place import empty, module_place
from tests.support.scene import Scene
from tests.support.slowness import patient


@dataclass
class Api:
    """`scene` acts as the replicas do; `http` asks in process, without a socket."""

    http: httpx.AsyncClient
    scene: Scene
    app: FastAPI
    replica: FakeReplica

    async def ask(self, method: str, path: str, body: Any = None, **query: Any) -> httpx.Response:
        given = {name: value for name, value in query.items() if value is not None}
        return await self.http.request(method, f"/api/v1{path}", json=body, params=given)

    async def get(self, path: str, **query: Any) -> Any:
        answer = await self.ask("GET", path, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any = None, *, expect: int = 200) -> Any:
        answer = await self.ask("POST", path, body)
        assert answer.status_code == expect, answer.text
        return answer.json()

    async def refused(self, status: int, method: str, path: str, body: Any = None, **query: Any) -> str:
        """What the refusal says; it is a problem in the one form that all have."""
        answer = await self.ask(method, path, body, **query)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status
        return answer.text

    async def all_of(self, path: str, cursor: str | None = None, **query: Any) -> list[Any]:
        """All items, page by page."""
        items: list[Any] = []
        for _ in range(500):
            page = await self.get(path, cursor=cursor, **query)
            items += page["items"]
            cursor = page["next"]
            if cursor is None:
                return items
        raise AssertionError("the pages do not end")

    async def audited(self) -> list[tuple[str, str, str, Any, Any]]:
        """Who did what to what, and what it was before and after; the oldest first."""
        rows = await self.scene.connection.fetch(
            "SELECT actor, action, target, before, after FROM supervisor.audit "
            "WHERE actor <> 'test' ORDER BY id"
        )
        return [
            (*row[:3], *(json.loads(text) if text is not None else None for text in row[3:])) for row in rows
        ]


@asynccontextmanager
async def api_of(database: Urls, state_dir: Path, **settings: Any) -> AsyncIterator[Api]:
    store, scene = Store(database.control, name="api", size=4), await Scene.open(database)
    replica = FakeReplica(store, door.guarded(state_dir=state_dir, **settings))
    app = create_app(replica)
    try:
        async with door.client(app) as http:
            yield Api(http, scene, app, replica)
    finally:
        await scene.close()
        await store.close()


@pytest.fixture
async def api(database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    monkeypatch.chdir(tmp_path)
    async with api_of(database, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
async def module_api(module_database: Shared, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    with module_place(tmp_path_factory) as place:
        async with api_of(module_database.urls, place) as made:
            yield made


@pytest.fixture
def shared_api(module_api: Api, emptied_database: Urls) -> Api:
    empty(module_api.replica.settings.state_dir)
    return replace(module_api, scene=Scene(module_api.scene.connection))


@asynccontextmanager
async def served(app: FastAPI, headers: Mapping[str, str] = door.BEARER) -> AsyncIterator[httpx.AsyncClient]:
    """On a port, for what is streamed."""
    ready, ports = anyio.Event(), []

    def note(port: int) -> None:
        ports.append(port)
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, app, "127.0.0.1", 0, note)
        with anyio.fail_after(patient(10)):
            await ready.wait()
        base = f"http://127.0.0.1:{ports[0]}/api/v1"
        async with httpx.AsyncClient(base_url=base, timeout=patient(20), headers=headers) as http:
            yield http
        tasks.cancel_scope.cancel()


class Events:
    """The events of a stream, one after the other."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.aiter_lines()
        self.last_id = ""

    async def next(self) -> tuple[str, Any]:
        """Comments are passed over; ("", None) at the end of the stream."""
        name, data = "", None
        async for line in self._lines:
            if line.startswith("id: "):
                self.last_id = line[4:]
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
            elif not line and name:
                return name, data
        return "", None

    async def until(self, wanted: str) -> Any:
        others: list[str] = []
        with anyio.move_on_after(patient(15)):
            while True:
                name, data = await self.next()
                assert name, f"the stream ended before {wanted}; there were {others}"
                if name == wanted:
                    return data
                others.append(name)
        raise AssertionError(f"no event {wanted} came; there were {others}")


@asynccontextmanager
async def listening(
    http: httpx.AsyncClient, path: str, headers: dict[str, str] | None = None
) -> AsyncIterator[Events]:
    async with http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Events(answer)
