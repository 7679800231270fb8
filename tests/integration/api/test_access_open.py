"""Loopback opens nothing: not to other users of the machine, to web pages, or to what a proxy brings."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from actors import DOMAINS
from supervisor.api import create_app
from supervisor.config import Settings
from supervisor.embedded import Urls
from tests.integration.api.access_scene import Scene, bearer, scene_of
from tests.support.fake_replica import FakeReplica
from tests.support.routes import paths_and_methods

OPEN = {"/healthz", "/readyz", "/metrics", "/login", "/static/{digest}/{name}"}
PAGE = {"Accept": "text/html"}


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    """On loopback, without a token of the environment."""
    async with scene_of(database, http_host="127.0.0.1") as scene:
        yield scene


def near(scene: Scene, app: FastAPI | None = None) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app or scene.app, client=("127.0.0.1", 50000))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080")


async def test_a_neighbour_without_credentials_gets_the_probes_and_the_login(scene: Scene) -> None:
    """S1: any user of the machine defined a command on an open loopback, and ran it as the replica's user."""
    app = create_app(FakeReplica(scene.store, Settings()), DOMAINS)
    asked = paths_and_methods(app)
    assert len(asked) > 130, asked
    async with near(scene, app) as http:
        for path, method in asked:
            answer = await http.request(method, path)
            assert (answer.status_code == 401) == (path not in OPEN), (path, method)
        page = await http.get("/runs", headers=PAGE)
        assert (page.status_code, page.headers["location"]) == (303, "/login?next=/runs")


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost", "[::1]:8080", "evil.example", "127.0.0.1#.x", ""]
)
async def test_no_name_of_the_host_opens_anything(scene: Scene, host: str) -> None:
    """S2: a page that points its own name here has no cookie of this server: it went to another name."""
    token = await scene.token("anna", "view")
    async with near(scene) as http:
        for headers in ({"Host": host}, {"Host": host, "X-Forwarded-Host": "127.0.0.1"}):
            for method in ("GET", "POST"):
                assert (await http.request(method, "/t/name", headers=headers)).status_code == 401
        answer = await http.get("/t/name", headers={"Host": host} | bearer(token))
        assert answer.json() == "token:anna", "nor does one close what a token opens"


async def test_a_login_near_by_is_for_one_name_only(scene: Scene) -> None:
    """S2: without a domain of its own the cookie goes to this very name, never along with another's page."""
    token = await scene.token("anna", "operate")
    async with near(scene) as http:
        answer = await http.post("/login", data={"token": token})
        cookie = answer.headers["set-cookie"].lower()
        assert "domain=" not in cookie
        assert "samesite=strict" in cookie
        assert (await http.get("/t/name")).json() == "token:anna"
        rebound = await http.get("/t/name", headers={"Host": "evil.example", "Cookie": ""})
        assert rebound.status_code == 401
        foreign = {"Origin": "http://evil.example:8080"}
        assert (await http.post("/t/form", headers=foreign)).status_code == 403


async def test_no_token_at_all_is_no_way_in(scene: Scene) -> None:
    """It was: until the first token, whoever was near was the operator."""
    async with near(scene) as http:
        assert (await http.get("/t/admin")).status_code == 401
        await scene.token("anna", "view")
        await scene.revoke("anna")
        assert (await http.get("/t/admin")).status_code == 401
