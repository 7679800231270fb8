"""Probes are answered before anything else is made, and the rest is made once."""

import asyncio
from typing import Any

import httpx
from starlette.responses import PlainTextResponse

from supervisor.api.doorway import Doorway
from supervisor.api.probes_only import refuse_all
from supervisor.config import Settings
from supervisor.store import Store
from tests.support.eventually import eventually
from tests.support.fake_replica import FakeReplica

HEADERS = ("x-content-type-options", "x-frame-options", "content-security-policy", "cache-control")


def client(made: list[str]) -> httpx.AsyncClient:
    def make() -> Any:
        made.append("made")
        return PlainTextResponse("the rest")

    store = Store("postgresql://nobody@127.0.0.1:1/none", name="test")
    doorway = Doorway(FakeReplica(store, Settings()), make)
    return httpx.AsyncClient(transport=httpx.ASGITransport(doorway), base_url="http://127.0.0.1")


async def test_probes_make_nothing() -> None:
    made: list[str] = []
    async with client(made) as http:
        health = await http.get("/healthz")
        assert (health.status_code, health.json()) == (200, {"status": "ok", "worker_id": "w1"})
        assert (await http.get("/readyz")).status_code == 503
        assert "tenure_leader" in (await http.get("/metrics")).text
        assert all(name in health.headers for name in HEADERS)
    assert made == []


async def test_the_rest_is_made_once() -> None:
    made: list[str] = []
    async with client(made) as http:
        answers = await asyncio.gather(*(http.get("/status") for _ in range(5)), http.post("/healthz"))
    assert {answer.text for answer in answers} == {"the rest"}
    assert made == ["made"]


async def test_requests_go_through_side_by_side() -> None:
    """Not one in a turn of the loop: in a flood the last one would be pushed out before it began."""
    begun = 0

    async def nothing(*_: Any) -> Any:
        """Neither receive nor send is used."""

    async def rest(*_: Any) -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    store = Store("postgresql://nobody@127.0.0.1:1/none", name="test")
    doorway = Doorway(FakeReplica(store, Settings()), lambda: rest)
    scope = {"type": "http", "method": "GET", "path": "/status"}
    first = asyncio.create_task(doorway(scope, nothing, nothing))
    await eventually(lambda: begun == 1)
    more = [asyncio.create_task(doorway(scope, nothing, nothing)) for _ in range(50)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert begun == 1 + len(more)
    for task in (first, *more):
        task.cancel()


async def test_one_that_only_works_answers_probes_and_nothing_else() -> None:
    store = Store("postgresql://nobody@127.0.0.1:1/none", name="test")
    transport = httpx.ASGITransport(Doorway(FakeReplica(store, Settings()), refuse_all))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        assert (await http.get("/healthz")).status_code == 200
        asked = [
            ("GET", "/"),
            ("GET", "/login"),
            ("POST", "/healthz"),
            ("DELETE", "/api/v1/job-definitions/x"),
        ]
        for method, path in asked:
            refused = await http.request(method, path)
            assert (refused.status_code, refused.json()["title"]) == (404, "not served here")
            assert "GET /healthz" in refused.json()["detail"]
            assert all(name in refused.headers for name in HEADERS)
