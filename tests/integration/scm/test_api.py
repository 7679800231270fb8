"""The routes of the domain: repositories, syncs, and evidence that is verified before it is shown."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from actors.scm import DOMAIN
from supervisor.api import create_app
from supervisor.artifacts.local import LocalArtifacts
from supervisor.embedded import Urls
from supervisor.store import Store
from tests.integration.dedup.api_scene import is_problem
from tests.integration.scm.ledger import Ledger, opened, revision
from tests.support import door
from tests.support.fake_replica import FakeReplica
from tests.support.lending import Shared
from tests.support.module_place import empty, module_place

# larger than what is held in memory, and of whole pieces: what follows it would come in one of its own
LARGE = (b"Index: a\n" + b"+\xff\x1b[31mred\n" * 300_000)[: 2 << 20]


@dataclass
class Scene:
    http: httpx.AsyncClient
    ledger: Ledger
    shelf: LocalArtifacts
    place: Path

    async def get(self, path: str, **query: Any) -> httpx.Response:
        return await self.http.get(f"/api/v1/scm{path}", params=query)

    async def all(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """All items, two to a page."""
        found: list[dict[str, Any]] = []
        more: dict[str, Any] = {"limit": 2}
        while True:
            answer = await self.get(path, **query, **more)
            assert answer.status_code == 200, answer.text
            found += answer.json()["items"]
            if answer.json()["next"] is None:
                return found
            more["cursor"] = answer.json()["next"]

    async def synced(self, name: str, *contents: bytes) -> list[str]:
        """A repository whose revisions have these diffs; their evidence URIs."""
        repo = await self.ledger.repo(name)
        facts = []
        for rev, content in enumerate(contents, start=1):
            stored = await self.shelf.put(f"scm/{repo}/svn/r{rev}.diff", content)
            patch = {"uri": stored.key, "sha256": stored.sha256, "size_bytes": stored.size}
            facts.append(revision(rev, patch=patch))
        held = await self.ledger.begun(name)
        await self.ledger.begin(held)
        await self.ledger.record(held, 1, facts, len(contents))
        await self.ledger.finish(held)
        digests = [hashlib.sha256(content).hexdigest() for content in contents]
        return [f"memory://patch_blobs/svn/{repo}:{n}/{digest}" for n, digest in enumerate(digests, start=1)]

    def forge(self, name: str, content: bytes) -> None:
        path = next(self.place.rglob(name))
        path.chmod(0o600)
        path.write_bytes(content)


@pytest.fixture(scope="module")
async def module_scene(
    module_database: Shared, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    with module_place(tmp_path_factory) as place, pytest.MonkeyPatch.context() as patch:
        shelf = place / "shelf"
        patch.setenv("TENURE_ARTIFACTS_DIR", str(shelf))
        store = Store(module_database.urls.control, name="api", size=4)
        app = create_app(FakeReplica(store, door.guarded(state_dir=place / "state")), [DOMAIN])
        async with opened(module_database.urls) as ledger, door.client(app) as http:
            yield Scene(http, ledger, LocalArtifacts(shelf), shelf)
        await store.close()


@pytest.fixture
def scene(module_scene: Scene, emptied_database: Urls) -> Scene:
    for name in ("scm", "attachments"):  # and not what says which store it is
        if (module_scene.place / name).exists():
            empty(module_scene.place / name)
    return module_scene


async def test_repositories_and_their_syncs(scene: Scene) -> None:
    """R001-131, R001-135: lag and cursor of each task; pages end, and hold each one once."""
    for name in ("one", "two", "three"):
        await scene.synced(name, b"x")
    await scene.ledger.repo("web", "gitlab", project_id=7, token_env="SCM_TOKEN")
    assert [one["name"] for one in await scene.all("/repos")] == ["one", "three", "two", "web"]
    shown = (await scene.get("/repos/one")).json()
    assert (shown["svn_revisions"], shown["patch_blobs"], shown["repo_type"]) == (1, 1, "svn")
    tasks = await scene.all("/tasks")
    assert [(one["repo"], one["source_type"]) for one in tasks] == [
        ("one", "svn"), ("three", "svn"), ("two", "svn"),
        ("web", "git"), ("web", "gitlab_mr"), ("web", "gitlab_review"),
    ]  # fmt: skip
    assert tasks[0]["cursor"]["watermark"] == 1
    assert tasks[0]["cursor_age_seconds"] >= 0
    assert (tasks[3]["cursor"], tasks[3]["lag_seconds"]) == (None, None)
    assert [one["repo"] for one in await scene.all("/tasks", repo="web")] == ["web"] * 3
    runs = await scene.all("/runs", status="completed")
    assert [one["repo"] for one in runs] == ["three", "two", "one"]
    run = (await scene.get(f"/runs/{runs[0]['run_id']}")).json()
    assert (run["stats"]["inserted"], run["watermark_end"], run["error"]) == (1, 1, None)
    for missing in ("/repos/none", "/repos/none/evidence", "/runs/none"):
        assert is_problem(await scene.get(missing), 404, "NOT_FOUND")


async def test_evidence_is_listed_shown_verified_and_streamed(scene: Scene) -> None:
    """R001-036, R001-043: of a record, from its URI to its very bytes."""
    first, second, third = await scene.synced("code", b"a", LARGE, b"")
    listed = await scene.all("/repos/code/evidence")
    assert [one["evidence_uri"] for one in listed] == [first, second, third]
    (one,) = await scene.all("/repos/code/evidence", record="2")
    assert (one["evidence_uri"], one["record"], one["size_bytes"]) == (second, "2", len(LARGE))
    facts = (await scene.get("/evidence", uri=second)).json()
    assert facts == {name: one[name] for name in ("evidence_uri", "key", "sha256", "size_bytes")}
    verified = (await scene.get("/evidence/verify", uri=second)).json()
    assert verified == {**facts, "sound": True, "code": None, "detail": None}
    for uri, content in ((first, b"a"), (second, LARGE), (third, b"")):
        answer = await scene.get("/evidence/content", uri=uri)
        assert (answer.status_code, answer.content == content) == (200, True)
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment;")


async def test_other_content_is_not_handed_out(scene: Scene) -> None:
    """R001-043, R001-118: CHECKSUM_MISMATCH, and none of it; longer, shorter, or another of the same size."""
    (uri,) = await scene.synced("code", LARGE)
    for forged in (b"X" + LARGE[1:], LARGE[:-1], LARGE + b"more", b""):
        scene.forge("r1.diff", forged)
        answer = await scene.get("/evidence/content", uri=uri)
        assert is_problem(answer, 409, "CHECKSUM_MISMATCH")
        assert b"Index" not in answer.content
        told = (await scene.get("/evidence/verify", uri=uri)).json()
        assert (told["sound"], told["code"]) == (False, "CHECKSUM_MISMATCH")


async def test_evidence_that_is_not_there(scene: Scene) -> None:
    """R001-043: a row that nobody wrote, a digest that the row has not, a content that is gone."""
    (uri,) = await scene.synced("code", b"a")
    place, _, digest = uri.rpartition("/")
    for route in ("/evidence", "/evidence/verify", "/evidence/content"):
        unknown = f"memory://patch_blobs/svn/999:1/{digest}"
        assert is_problem(await scene.get(route, uri=unknown), 404, "NOT_FOUND")
        assert is_problem(await scene.get(route, uri=f"{place}/{'0' * 64}"), 409, "CHECKSUM_MISMATCH")
    await scene.shelf.delete("scm/" + uri.split("/")[4].split(":")[0] + "/svn/r1.diff")
    assert is_problem(await scene.get("/evidence/content", uri=uri), 404, "CONTENT_MISSING")
    told = (await scene.get("/evidence/verify", uri=uri)).json()
    assert (told["sound"], told["code"]) == (False, "NOT_FOUND")


async def test_what_does_not_fit_is_refused(scene: Scene) -> None:
    """R001-039: a key or an address is no evidence URI, and nothing is read for it."""
    texts = ["", "scm/1/svn/r1.diff", "file:///etc/passwd", "s3://b/k", "memory://x", "\x00", "é" * 1500]
    for uri in [*texts, "x" * 5000]:
        for route in ("/evidence", "/evidence/verify", "/evidence/content"):
            assert is_problem(await scene.get(route, uri=uri), 422, "INVALID_INPUT")
    for cursor in ("x", "WzFd", "!", "W10", "WyJcdTAwMDAiXQ"):
        assert is_problem(await scene.get("/tasks", cursor=cursor), 422, "INVALID_INPUT")
    for path in (
        "/repos/-x",
        "/runs/a%00",
        "/repos/x/evidence?record=r1",
        "/tasks?repo=%00",
        "/runs?status=x",
    ):
        answer = await scene.http.get(f"/api/v1/scm{path}")
        assert is_problem(answer, 422, "INVALID_INPUT"), path


async def test_an_address_is_stored_as_its_key(scene: Scene) -> None:
    """R001-039, R001-010: one of our own store becomes its key; any other is refused, and nothing stored."""
    item = await scene.ledger.control.fetchval("SELECT logbook.add_item('note', 'n', 'open', 'proj', '{}')")
    stored = await scene.shelf.put("attachments/1/1.log", b"it happened")
    route = f"/api/v1/scm/items/{item}/attachments"
    first, again = [
        await scene.http.post(route, json={"kind": "log", "uri": uri}) for uri in (stored.uri, stored.key)
    ]
    assert (first.status_code, again.json()) == (200, first.json()), first.text
    assert (first.json()["key"], first.json()["sha256"]) == (stored.key, stored.sha256)
    evidence = first.json()["evidence_uri"]
    assert (await scene.get("/evidence/content", uri=evidence)).content == b"it happened"
    rows = await scene.ledger.admin.fetch("SELECT uri FROM logbook.attachments")
    assert [row["uri"] for row in rows] == [stored.key]
    for uri in ("file:///etc/passwd", "s3://bucket/key", "https://u:secret@example.org/x", "../x", "/x"):
        refused = await scene.http.post(route, json={"kind": "log", "uri": uri})
        assert is_problem(refused, 422, "INVALID_INPUT")
        assert "secret" not in refused.text
    wrong = {"kind": "log", "uri": stored.key, "sha256": "0" * 64}
    assert is_problem(await scene.http.post(route, json=wrong), 409, "CHECKSUM_MISMATCH")
    missing = {"kind": "log", "uri": "attachments/1/2.log"}
    assert is_problem(await scene.http.post(route, json=missing), 404, "CONTENT_MISSING")
    nowhere = await scene.http.post("/api/v1/scm/items/999/attachments", json=missing)
    assert is_problem(nowhere, 404, "NOT_FOUND")
    assert await scene.ledger.count("logbook.attachments") == 1
