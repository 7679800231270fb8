"""Libraries over HTTP: only directories below the one that is meant for them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.embedded import Urls
from tests.integration.dedup import api_scene
from tests.integration.dedup.api_scene import Scene, is_problem, scene_of
from tests.support.door import HOLDER

module_scene, scene = api_scene.module_scene, api_scene.empty_scene


async def session(scene: Scene, library: str, *paths: str) -> int:
    number: int = await scene.admin.fetchval(
        """INSERT INTO dedup.scan_sessions (library_id, status, finished_at)
           SELECT id, 'succeeded', now() FROM dedup.library_roots WHERE name = $1 RETURNING id""",
        library,
    )
    await scene.admin.execute(
        """INSERT INTO dedup.scan_errors (session_id, path, code)
           SELECT $1, p, 'IO_ERROR' FROM unnest($2::text[]) p""",
        number,
        list(paths),
    )
    return number


async def test_a_library_is_added_shown_and_forgotten(scene: Scene) -> None:
    (scene.libraries / "a" / "photos").mkdir(parents=True)
    (scene.libraries / "a" / "photos" / "x").write_bytes(b"x")
    answer = await scene.post("/libraries", {"name": "photos", "path": "a/photos"})
    assert (answer.status_code, answer.json()["path"], answer.json()["last_session_id"]) == (
        201,
        "a/photos",
        None,
    )
    number = await session(scene, "photos")
    shown = (await scene.get("/libraries/photos")).json()
    assert (shown["last_session_id"], shown["last_session_status"]) == (number, "succeeded")
    assert (await scene.get("/libraries")).json() == {"items": [shown], "next_cursor": None}
    answer = await scene.http.delete("/api/v1/libraries/photos")
    assert (answer.status_code, answer.content) == (204, b"")
    is_problem(await scene.get("/libraries/photos"), 404, "NOT_FOUND")
    is_problem(await scene.http.delete("/api/v1/libraries/photos"), 404, "NOT_FOUND")
    assert (scene.libraries / "a" / "photos" / "x").read_bytes() == b"x"
    actors = await scene.admin.fetch(
        "SELECT DISTINCT actor FROM supervisor.audit WHERE action LIKE 'library.%'"
    )
    assert [row["actor"] for row in actors] == [HOLDER]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc",
        "..",
        "../outside",
        "photos/../../outside",
        "photos/..",
        ".",
        "./photos",
        "photos/",
        "photos//a",
        "~",
        "~root",
        "~/photos",
        "$HOME",
        "photos/$X",
        "${HOME}",
        "photos\0",
        "\0",
        "\ud800",
        "\uf780",
        "a" * 300,
        "a/" * 3000 + "a",
        "nowhere",
        "file",
        "file/below",
    ],
    ids=lambda path: ascii(path)[:30],
)
async def test_a_path_that_does_not_lie_below_is_refused(scene: Scene, path: str) -> None:
    """R000-99: absolute, climbing, of a shell, or no directory; nothing is made, nothing is told."""
    (scene.libraries / "photos" / "a").mkdir(parents=True)
    (scene.libraries / "file").write_bytes(b"x")
    (scene.libraries.parent / "outside").mkdir()
    for name in ("~", "~root", "~/photos", "$HOME", "photos/$X", "${HOME}"):
        (scene.libraries / name).mkdir(parents=True)
    answer = await scene.http.post(
        "/api/v1/libraries",
        content=json.dumps({"name": "x", "path": path}),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"]
    assert str(scene.libraries) not in answer.text
    assert await scene.admin.fetchval("SELECT count(*) FROM dedup.library_roots") == 0


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("path", ["link", "link/below", "photos/link"])
async def test_a_link_on_the_way_is_refused(scene: Scene, path: str, inside: bool) -> None:
    """R000-100: wherever it leads to."""
    target = (scene.libraries if inside else scene.libraries.parent) / "target"
    (target / "below").mkdir(parents=True)
    (scene.libraries / "photos").mkdir()
    for link in (scene.libraries / "link", scene.libraries / "photos" / "link"):
        link.symlink_to(target)
    is_problem(await scene.post("/libraries", {"name": "x", "path": path}), 422, "ESCAPES_LIBRARY")
    assert await scene.admin.fetchval("SELECT count(*) FROM dedup.library_roots") == 0


async def test_a_name_or_place_that_is_taken_is_a_conflict(scene: Scene) -> None:
    for path in ("photos/2024", "music"):
        (scene.libraries / path).mkdir(parents=True)
    assert (await scene.post("/libraries", {"name": "photos", "path": "photos"})).status_code == 201
    for name, path in (("photos", "music"), ("other", "photos"), ("inner", "photos/2024")):
        is_problem(await scene.post("/libraries", {"name": name, "path": path}), 409, "CONFLICT")


@pytest.mark.parametrize("name", ["", ".x", "-x", "a b", "a/b", "a\n", "a\0", "é", "a" * 64, 7, None, True])
async def test_a_name_that_is_none_is_refused(scene: Scene, name: Any) -> None:
    (scene.libraries / "photos").mkdir()
    is_problem(await scene.post("/libraries", {"name": name, "path": "photos"}), 422, "INVALID_INPUT")


@pytest.mark.parametrize("directory", [None, "nowhere"])
async def test_without_a_directory_for_libraries_it_is_said_what_to_set(
    emptied_database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str | None
) -> None:
    """R000-99: a replica that has no place for libraries takes none."""
    monkeypatch.chdir(tmp_path)
    place = None if directory is None else tmp_path / directory
    async with scene_of(emptied_database, tmp_path, libraries_dir=place) as scene:
        answer = await scene.post("/libraries", {"name": "photos", "path": "photos"})
    is_problem(answer, 409, "LIBRARIES_DIR_UNSET")
    assert "TENURE_LIBRARIES_DIR" in answer.json()["detail"]


async def test_a_library_at_work_is_not_forgotten(scene: Scene) -> None:
    await scene.library()
    await scene.post("/jobs", {"kind": "scan", "library": "photos"})
    is_problem(await scene.http.delete("/api/v1/libraries/photos"), 409, "CONFLICT")


async def test_libraries_come_by_name(scene: Scene) -> None:
    for name in ("b", "a", "B", "A.1", "a-1", "9"):
        await scene.library(name)
    names = [library["name"] for library in await scene.pages("/libraries", limit=1)]
    assert names == sorted(names)
    assert len(names) == 6
    for cursor in ("", "a b", "\0", "a" * 64):
        is_problem(await scene.get("/libraries", cursor=cursor), 422, "INVALID_CURSOR")


async def test_walks_come_from_the_newest(scene: Scene) -> None:
    await scene.library("photos")
    await scene.library("music")
    made = [await session(scene, name) for name in ("photos", "music", "photos", "photos", "music", "photos")]
    listed = await scene.pages("/libraries/photos/sessions", limit=2)
    assert [walk["id"] for walk in listed] == [made[5], made[3], made[2], made[0]]
    assert (await scene.get(f"/scan-sessions/{made[0]}")).json() == listed[-1]
    for cursor in ("", "0", "x", str(2**63), "\0"):
        is_problem(await scene.get("/libraries/photos/sessions", cursor=cursor), 422, "INVALID_CURSOR")
    is_problem(await scene.get("/libraries/nowhere/sessions"), 404, "NOT_FOUND")


async def test_what_a_walk_could_not_read_comes_by_path(scene: Scene) -> None:
    """A path may be longer than an address: the cursor has one length."""
    await scene.library()
    paths = ["é", "a", "B", "z" * 2000, "a/b", "\uf780", "it's", "x/" * 900 + "y"]
    number = await session(scene, "photos", *paths)
    listed = [error["path"] for error in await scene.pages(f"/scan-sessions/{number}/errors", limit=1)]
    assert listed == sorted(paths)
    page = (await scene.get(f"/scan-sessions/{number}/errors", limit=3)).json()
    assert page["next_cursor"] == hashlib.sha256(page["items"][-1]["path"].encode()).hexdigest()
    for cursor in ("", "x", "0" * 64, "0" * 63, "\0"):
        is_problem(await scene.get(f"/scan-sessions/{number}/errors", cursor=cursor), 422, "INVALID_CURSOR")


@pytest.mark.parametrize(
    ("number", "status"),
    [("1", 404), ("0", 422), ("-1", 422), (str(2**63), 422), ("x", 422), ("9" * 30, 422)],
)
async def test_a_walk_that_is_not_there(scene: Scene, number: str, status: int) -> None:
    for path in (f"/scan-sessions/{number}", f"/scan-sessions/{number}/errors"):
        is_problem(await scene.get(path), status, "NOT_FOUND" if status == 404 else "INVALID_INPUT")
