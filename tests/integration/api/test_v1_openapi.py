"""The document says everything about each route, and roles are asked for what changes something."""

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from supervisor.api.principal import Role
from supervisor.api.tokens import new_secret, shown
from supervisor.embedded import Urls
from tests.integration.api.conftest import Api, api_of
from tests.integration.api.test_v1_fuzz import KERNEL, ROUTES

ADMIN = {"/settings/{name}": "put", "/leadership/resign": "post"}


def operations(app: FastAPI) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, facts)
        for path, methods in app.openapi()["paths"].items()
        for method, facts in methods.items()
        if path.startswith(KERNEL)
    ]


async def test_every_route_is_documented(api: Api) -> None:
    found = operations(api.app)
    assert len(found) == ROUTES
    ids = [facts["operationId"] for _, _, facts in found]
    assert len(set(ids)) == len(ids)
    for method, path, facts in found:
        assert facts["summary"], path
        assert facts["description"], path
        assert len(facts["tags"]) == 1, path
        assert {"401", "403", "422", "503"} <= facts["responses"].keys(), path
        assert "200" in facts["responses"], path
        for status, response in facts["responses"].items():
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"], (path, status)
                assert response["content"]["application/problem+json"]["example"]["status"] == int(status)
        if method in {"put", "post", "patch"} and "requestBody" in facts:
            assert "application/json" in facts["requestBody"]["content"]


async def test_a_role_that_is_too_small_is_refused_and_changes_nothing(
    database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading is for all; what changes something is for operate, what concerns the whole fleet for admin."""
    monkeypatch.chdir(tmp_path)
    async with api_of(database, tmp_path, http_host="0.0.0.0") as api:
        tokens = {role: await token(api, role) for role in (Role.VIEW, Role.OPERATE)}
        admins = set()
        for method, path, _ in operations(api.app):
            short = path.removeprefix("/api/v1")
            if method == "get":
                continue
            needed = Role.ADMIN if ADMIN.get(short) == method else Role.OPERATE
            api.http.headers["Authorization"] = f"Bearer {tokens[Role(needed - 1)]}"
            where = short.format(name="a", run_id=1, worker_id="w1")
            body = {"value": 1} if short.startswith("/settings") else None
            assert needed.name.lower() in await api.refused(403, method.upper(), where, body)
            admins |= {short} if needed is Role.ADMIN else set()
        assert admins == ADMIN.keys()
        assert [entry for entry in await api.audited() if entry[0] != "cli:test"] == []
        api.http.headers["Authorization"] = f"Bearer {tokens[Role.VIEW]}"
        assert (await api.get("/runs"))["items"] == []
        api.http.headers["Authorization"] = f"Bearer {tokens[Role.OPERATE]}"
        await api.post("/domains/command/pause")
        assert (await api.audited())[-1][:2] == ("token:OPERATE", "domain.pause"), "the audit names the token"
        del api.http.headers["Authorization"]
        await api.refused(401, "GET", "/runs")


async def token(api: Api, role: Role) -> str:
    secret, encoded = new_secret()
    row = await api.replica.store.row("create_token", "cli:test", role.name, role.name.lower(), encoded, None)
    assert row is not None
    return shown(row["id"], secret)
