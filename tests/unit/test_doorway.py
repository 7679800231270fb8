"""Probes are answered before anything else is made, and the rest is made once."""

import asyncio
from typing import Any

import httpx
from starlette.responses import PlainTextResponse

from supervisor.api.doorway import Doorway
from supervisor.config import Settings
from supervisor.store import Store
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
