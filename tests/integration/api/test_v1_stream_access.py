"""What is streamed ends with the credentials that it was asked with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from supervisor.api import lasting
from supervisor.api.access import TRUST_SECONDS
from supervisor.api.v1 import changes, run_logs
from supervisor.embedded import Urls
from tests.integration.api.access_scene import Scene, bearer, scene_of
from tests.integration.api.conftest import Api, Events, listening, served
from tests.integration.api.test_v1_runs import write_log

OVER = {"why": "the token or the login is over"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(run_logs, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(lasting, "ASK_SECONDS", 0.05)


@pytest.fixture
async def run(api: Api) -> int:
    await api.scene.lead()
    await api.scene.beat()
    await api.scene.job()
    run = await api.scene.run_to("RUNNING")
    await write_log(api, run, ["one\n"])
    return run


@asynccontextmanager
async def both(scene: Scene, run: int, headers: dict[str, str] | None = None) -> AsyncIterator[list[Events]]:
    """Live changes and a log that is followed, each begun; they end because the credentials do."""
    async with (
        served(scene.app, {}) as http,
        listening(http, "/stream", headers) as live,
        listening(http, f"/runs/{run}/logs?follow=true", headers) as log,
    ):
        await live.until("hello")
        await log.until("line")
        yield [live, log]
        assert await live.until("end") == OVER
        assert await log.until("end") == OVER | {"id": run}
        assert [await events.next() for events in (live, log)] == [("", None)] * 2


async def test_a_stream_ends_when_its_token_is_revoked(database: Urls, run: int) -> None:
    """S3"""
    async with scene_of(database) as scene, both(scene, run, bearer(await scene.token("ci", "view"))):
        await scene.revoke("ci")
        scene.clock.pass_seconds(TRUST_SECONDS)


async def test_a_stream_ends_when_its_token_expires(database: Urls, run: int) -> None:
    async with scene_of(database) as scene:
        short = bearer(await scene.token("ci", "view", seconds=60))
        async with both(scene, run, short):
            await scene.admin.execute(
                "UPDATE supervisor.api_token SET created_at = '2020-01-01', expires_at = '2020-01-02'"
            )
            scene.clock.pass_seconds(TRUST_SECONDS)


async def test_a_stream_ends_with_the_login(database: Urls, run: int) -> None:
    async with scene_of(database) as scene, scene.client() as http:
        own = await scene.log_in(http, await scene.token("anna", "view"))
        cookie = {"Cookie": f"tenure_session={http.cookies['tenure_session']}"}
        async with both(scene, run, cookie):
            assert (await http.post("/logout", data={"csrf": own})).status_code == 303


async def test_a_stream_goes_on_while_its_token_is_good(api: Api, database: Urls, run: int) -> None:
    async with scene_of(database) as scene:
        good = bearer(await scene.token("ci", "view"))
        async with both(scene, run, good) as (live, log):
            for number in range(1, 4):
                scene.clock.pass_seconds(TRUST_SECONDS)
                await write_log(api, run, [f"{number}\n"], first=number)
                line: Any = await log.until("line")
                assert line["body"] == f"{number}\n"
            other = await api.scene.enqueue()
            while (await live.until("run"))["id"] != other:
                pass  # the first run's own moves
            await scene.revoke("ci")
            scene.clock.pass_seconds(TRUST_SECONDS)
