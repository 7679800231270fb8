"""What a token's role is worth where work is defined: operators ask for work, admins choose programs."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from supervisor.embedded import Urls
from tests.integration.api.access_scene import Scene, bearer, scene_of

PROGRAM: Final = {"domain": "command", "payload": {"argv": ["true"]}}
SCAN: Final = {"domain": "dedup", "action": "scan"}


@pytest.fixture
async def scene(database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Scene]:
    monkeypatch.chdir(tmp_path)
    async with scene_of(database) as scene:
        yield scene


async def ask(http: httpx.AsyncClient, method: str, path: str, body: Any = None) -> int:
    answer = await http.request(method, f"/api/v1/job-definitions/{path}", json=body)
    if answer.status_code == 403:
        assert "only role admin may save or remove job" in answer.json()["title"]
        assert "--role admin" in answer.json()["detail"]
    return answer.status_code


async def test_operators_define_no_program(scene: Scene) -> None:
    """A token of role operate saved a definition whose program printed TENURE_API_TOKEN, of role admin."""
    async with scene.client() as admin, scene.client() as operator:
        admin.headers.update(bearer(await scene.token("anna", "admin")))
        operator.headers.update(bearer(await scene.token("olga", "operate")))
        assert await ask(admin, "PUT", "old", PROGRAM) == 201
        for method, path, body in (("PUT", "new", PROGRAM), ("PUT", "old", PROGRAM), ("DELETE", "old", None)):
            assert await ask(operator, method, path, body) == 403
        assert await ask(operator, "PUT", "old", SCAN) == 403, "it would be gone"
        assert await ask(operator, "PUT", "scan", SCAN) == 201
        assert await ask(operator, "PUT", "scan", PROGRAM) == 403
        assert await ask(operator, "DELETE", "scan") == 200
        for enabled in (False, True):
            assert await ask(operator, "PATCH", "old", {"enabled": enabled}) == 200
        assert await ask(operator, "POST", "old/trigger") == 201
        assert await ask(operator, "POST", "old/trigger", {"payload": {"argv": ["id"]}}) == 400
        shown = (await operator.get("/api/v1/job-definitions/old")).json()
        assert shown["payload"] == PROGRAM["payload"]
        assert await ask(admin, "PUT", "old", {**PROGRAM, "priority": 3}) == 200
