"""Open loopback: for whoever is on this machine until somebody has a token; never for what a proxy brings."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.api.access import TRUST_SECONDS
from supervisor.api.openness import Openness
from supervisor.embedded import Urls
from supervisor.errors import DatabaseUnreachable
from supervisor.store import Store
from tests.integration.api.access_scene import HOST, Scene, bearer, scene_of
from tests.support.fake_clock import FakeClock

PAGE = {"Accept": "text/html"}


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    async with scene_of(database, http_host="127.0.0.1") as scene:
        yield scene


def near(scene: Scene) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(scene.app, client=("127.0.0.1", 50000))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080")


async def test_what_a_proxy_brings_is_not_from_this_machine(scene: Scene) -> None:
    """S1: the proxy is near, and names loopback as the host; whoever asks it may be anywhere."""
    async with near(scene) as http:
        assert (await http.post("/t/name")).json() == "loopback"
        for name in (
            "Forwarded",
            "Via",
            "X-Real-IP",
            "X-Client-IP",
            "True-Client-IP",
            "CF-Connecting-IP",
            "x-forwarded-for",
            "X-Forwarded-Host",
            "X-Forwarded-Proto",
        ):
            for value in ("127.0.0.1", ""):
                brought = {name: value}
                answers = [
                    await http.get("/t/name", headers=brought),
                    await http.post("/t/name", headers=brought),
                ]
                assert [answer.status_code for answer in answers] == [401, 401], name
                page = await http.get("/t/page", headers=PAGE | brought)
                assert (page.status_code, page.headers["location"]) == (303, "/login?next=/t/page")
        assert (await http.get("/healthz", headers={"Via": "1.1 proxy"})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1#.evil.example",
        "127.0.0.1/.evil.example",
        "127.0.0.1?.evil.example",
        "evil.example@127.0.0.1",
        "localhost.",
        "127.1",
        "[::ffff:127.0.0.1%evil]",
        "127.0.0.1:8080:1",
        "",
    ],
)
async def test_a_host_that_only_looks_like_this_machine_is_refused(scene: Scene, host: str) -> None:
    """S1: a page of a name that points here, or a name that some parser would cut."""
    async with near(scene) as http:
        answer = await http.get("/t/name", headers={"Host": host})
        assert answer.status_code == 421
        for ours in ("127.0.0.1", "127.0.0.1:8080", "LOCALHOST:1", "[::1]:8080"):
            assert (await http.get("/t/name", headers={"Host": ours})).status_code == 200, ours


async def test_the_first_token_ends_the_openness(scene: Scene) -> None:
    """S1: a proxy that adds no header is not seen; a token is the way to put one in front."""
    async with near(scene) as http:
        assert (await http.get("/t/admin")).json() == "loopback"
        token = await scene.token("anna", "view")
        scene.clock.pass_seconds(TRUST_SECONDS)
        for method in ("GET", "POST"):
            answer = await http.request(method, "/t/name")
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert (await http.get("/t/page", headers=PAGE)).headers["location"] == "/login?next=/t/page"
        for host in ("127.0.0.1:8080", HOST):
            named = bearer(token) | {"Host": host}
            assert (await http.get("/t/name", headers=named)).json() == "token:anna", "by any name"
        await scene.revoke("anna")
        scene.clock.pass_seconds(TRUST_SECONDS)
        assert (await http.get("/t/name")).json() == "loopback", "nobody has one any more"


class ShakyStore(Store):
    """The real one, until its database is away."""

    away = False
    asked = 0

    async def value(self, query: Any, *args: Any, **more: Any) -> Any:
        self.asked += 1
        if self.away:
            raise DatabaseUnreachable(what="away")
        return await super().value(query, *args, **more)


async def test_without_a_database_the_last_answer_holds(database: Urls, scene: Scene) -> None:
    store, clock = ShakyStore(database.control, name="shaky"), FakeClock()
    openness = Openness(store, clock, TRUST_SECONDS)
    try:
        store.away = True
        with pytest.raises(DatabaseUnreachable):
            await openness.holds()
        for expected in (True, False):
            store.away = False
            clock.pass_seconds(TRUST_SECONDS)
            assert await openness.holds() is expected
            asked = store.asked
            store.away = True
            clock.pass_seconds(TRUST_SECONDS)
            assert [await openness.holds() for _ in range(3)] == [expected] * 3
            assert store.asked == asked + 1, "nor is it asked more often"
            if expected:
                await scene.token("anna", "view")
    finally:
        await store.close()
