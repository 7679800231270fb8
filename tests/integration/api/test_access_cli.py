"""`tenure token`: shown once, listed without the secret, revoked, and each change in the audit."""

import json
from pathlib import Path

import pytest

from supervisor.embedded import Urls
from tests.integration.api.access_scene import bearer, scene_of
from tests.support.command_line import command_line


async def test_a_token_is_made_used_listed_and_revoked(
    database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cli = command_line(database, monkeypatch, tmp_path)
    made = (await cli("token", "create", "grafana", "--role", "view", "--expires-in", "90d", "--json")).json()
    assert made.keys() == {"id", "name", "role", "expires_at", "token"}
    secret = made["token"].split("_", 2)[2]
    shown = await cli("token", "create", "ci", "--role", "operate")
    assert shown.out.startswith("tnr_")
    assert "not shown again" in shown.out

    monkeypatch.delenv("TENURE_DATABASE_URL")
    monkeypatch.delenv("TENURE_WORKER_DATABASE_URL")
    async with scene_of(database) as scene, scene.client() as http:
        for token, code in ((made["token"], 403), (shown.out.splitlines()[0], 200)):
            assert (await http.post("/t/name", headers=bearer(token))).status_code == code
    cli = command_line(database, monkeypatch, tmp_path)

    listed = await cli("token", "list", "--json")
    first, second = listed.json()
    assert (first["name"], first["role"], second["name"]) == ("grafana", "view", "ci")
    assert first["created_by"].startswith("cli:")
    assert first["last_used_at"] is not None
    for row in (listed, await cli("token", "list")):
        assert secret not in row.out
        assert "argon2" not in row.out

    assert (await cli("token", "revoke", "grafana", "--json")).json() == {
        "id": made["id"],
        "name": "grafana",
        "revoked": True,
    }
    assert "already" in (await cli("token", "revoke", str(made["id"]))).out
    table = (await cli("token", "list")).out
    assert "revoked" in table
    assert "usable" in table
    audit = (await cli("audit", "list", "--target", "token:grafana", "--json")).json()
    assert [entry["action"] for entry in audit] == ["token.revoke", "token.create"]
    assert audit[1]["after"]["role"] == "view"
    assert secret not in json.dumps(audit)
    assert "argon2" not in json.dumps(audit)


async def test_a_name_is_given_once_until_it_is_revoked(
    database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cli = command_line(database, monkeypatch, tmp_path)
    assert "token create" in (await cli("token", "list")).out
    assert (await cli("token", "create", "ci", "--role", "view")).code == 0
    taken = await cli("token", "create", "ci", "--role", "admin")
    assert (taken.code, taken.out) == (4, "")
    assert (await cli("token", "revoke", "ci")).code == 0
    assert (await cli("token", "create", "ci", "--role", "admin")).code == 0
    missing = await cli("token", "revoke", "nobody")
    assert missing.code == 5
    assert "tenure token list" in missing.err
    for wrong in (
        ("create", "7", "--role", "view"),
        ("create", "a:b", "--role", "view"),
        ("create", "x" * 64, "--role", "view"),
        ("create", "x"),
        ("create", "x", "--role", "root"),
        ("create", "x", "--role", "view", "--expires-in", "90"),
        ("create", "x", "--role", "view", "--expires-in", "1s"),
        ("create", "x", "--role", "view", "--expires-in", "999999999w"),
        ("revoke", "\udcff"),
    ):
        assert (await cli("token", *wrong)).code == 2, wrong
    assert len((await cli("token", "list", "--json")).json()) == 2
