"""`tenure library` against a real database and real directories; jobs are moved by hand."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.embedded import Urls
from tests.support.command_line import Answer, Cli, command_line
from tests.support.eventually import eventually
from tests.support.scene import Scene
from tests.support.shelf import Shelf
from tests.support.slowness import patient

HOSTILE = "a\x1b[31m\u202e\nb.txt"


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "libraries"
    (directory / "photos" / "2024").mkdir(parents=True)
    monkeypatch.setenv("TENURE_LIBRARIES_DIR", str(directory))
    return directory


@pytest.fixture
def cli(database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, libraries: Path) -> Cli:
    return command_line(database, monkeypatch, tmp_path)


@pytest.fixture
async def shelf(database: Urls) -> AsyncIterator[Shelf]:
    shelf = await Shelf.open(database)
    yield shelf
    await shelf.close()


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    scene = await Scene.open(database)
    await scene.lead("w1")
    await scene.beat("w1")
    await scene.connection.execute("UPDATE supervisor.worker SET domains = '{dedup}'")
    yield scene
    await scene.close()


async def names(shelf: Shelf) -> list[str]:
    return [row["name"] for row in await shelf.rows("SELECT name FROM dedup.library_roots ORDER BY name")]


@pytest.mark.parametrize("path", ["photos", "photos/", "{}/photos", "{}/photos/"])
async def test_a_library_is_added_by_either_path(cli: Cli, shelf: Shelf, libraries: Path, path: str) -> None:
    added = (await cli("library", "add", "mine", path.format(libraries), "--json")).json()
    assert (added["name"], added["path"]) == ("mine", "photos")
    assert await shelf.value("SELECT root_path FROM dedup.library_roots") == "photos"
    assert await shelf.value("SELECT actor ~ '^cli:' FROM supervisor.audit WHERE action = 'library.add'")


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../libraries/photos",
        "photos/..",
        "photos/../..",
        "./photos",
        ".",
        "",
        "/",
        "//",
        "~",
        "~root",
        "$HOME",
        "~real",
        "real$",
        "/etc",
        "{}",
        "{}/",
        "{}/../libraries/photos",
        "{}-evil",
        "photos\x00",
        "absent",
        "file",
        "link",
        "out/deeper",
        "photos//2024",
    ],
)
async def test_a_path_that_leads_out_is_refused(cli: Cli, shelf: Shelf, libraries: Path, path: str) -> None:
    """R000-99, R000-100: outside, `..`, `~`, `$`, links, and what is no directory; nothing is stored."""
    for real in ("~real", "real$", "evil"):
        (libraries / real).mkdir()
    (libraries / "file").write_text("x")
    (libraries / "link").symlink_to(libraries / "photos")
    outside = libraries.parent / "outside" / "deeper"
    outside.mkdir(parents=True)
    (libraries / "out").symlink_to(outside.parent)
    Path(f"{libraries}-evil").mkdir()
    refused = await cli("library", "add", "mine", path.format(libraries), "--json")
    assert refused.code == 2, refused.out
    assert json.loads(refused.err).keys() == {"error", "hint"}
    assert await names(shelf) == []


@pytest.mark.parametrize("name", ["", ".", "-x", "a b", "a/b", "x" * 64, "ä", "a\nb", "\udcff"])
async def test_a_bad_name_is_refused(cli: Cli, shelf: Shelf, name: str) -> None:
    for command in (["add", "--", name, "photos"], ["scan", "--", name], ["remove", "--", name]):
        assert (await cli("library", *command)).code == 2
    for command in (["errors", "--", name], ["status", "--", name]):
        assert (await cli("library", *command)).code == 2
    assert await names(shelf) == []


async def test_one_library_is_not_inside_another(cli: Cli, shelf: Shelf) -> None:
    await cli("library", "add", "photos", "photos")
    for name, path in (("photos", "photos"), ("again", "photos"), ("inner", "photos/2024")):
        assert (await cli("library", "add", name, path)).code == 4
    assert await names(shelf) == ["photos"]


async def test_without_the_directory_of_libraries(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENURE_LIBRARIES_DIR")
    refused = await cli("library", "add", "mine", "photos")
    assert refused.code == 2
    assert "TENURE_LIBRARIES_DIR" in refused.err


async def test_listed_and_removed(cli: Cli, shelf: Shelf, libraries: Path) -> None:
    assert "tenure library add" in (await cli("library", "list")).out
    await shelf.library()
    await shelf.file("a.txt")
    kept = libraries / "photos" / "a.txt"
    kept.write_text("x")
    assert [row["name"] for row in (await cli("library", "list", "--json")).json()] == ["photos"]
    assert "never" in (await cli("library", "list")).out
    job = await shelf.job("scan")
    assert (await cli("library", "remove", "photos")).code == 4, "its scan has not ended"
    await shelf.end(job)
    assert (await cli("library", "remove", "photos", "--json")).json()["removed"] is True
    assert await names(shelf) == []
    assert kept.read_text() == "x", "originals stay"
    for command in (["remove", "photos"], ["scan", "photos"], ["status", "photos"], ["errors", "photos"]):
        gone = await cli("library", *command)
        assert gone.code == 5
        assert "no library photos" in gone.err


async def test_status_counts_what_is_there(cli: Cli, shelf: Shelf) -> None:
    await shelf.library()
    await shelf.library("empty")
    await shelf.file("a", size=100)
    await shelf.file("b", None, size=20)
    await shelf.file("c", missing=True, size=3000)
    failed = await shelf.file("d", None, size=1)
    await shelf.value("UPDATE dedup.library_files SET hash_error_code = 'BUSY' WHERE id = $1", failed)
    scan = await shelf.job("scan")
    await shelf.begin(scan, done=7, total=10, progress=0.7)
    found = (await cli("library", "status", "photos", "--json")).json()
    wanted = {"name": "photos", "files": 3, "bytes": 121, "missing": 1, "to_hash": 2, "hash_errors": 1}
    assert wanted.items() <= found.items()
    assert found["last_scan"] is None
    assert found["job"] == {
        "id": str(scan),
        "kind": "scan",
        "status": "running",
        "progress": 0.7,
        "processed_items": 7,
        "total_items": 10,
    }
    await shelf.walked(scan, files_seen=4, files_new=4, error_count=2)
    await shelf.end(scan)
    both = (await cli("library", "status", "--json")).json()
    assert [row["name"] for row in both] == ["empty", "photos"]
    assert (both[0]["files"], both[0]["bytes"], both[0]["job"]) == (0, 0, None)
    assert {"files": 4, "new": 4, "errors": 2, "status": "succeeded"}.items() <= both[1]["last_scan"].items()
    assert both[1]["job"] is None
    assert "photos" in (await cli("library", "status")).out
    assert "4 new, 0 changed, 0 moved, 0 missing, 2 errors" in (await cli("library", "status", "photos")).out


async def test_errors_of_the_last_scan_and_of_hashes(cli: Cli, shelf: Shelf) -> None:
    await shelf.library()
    assert "no errors" in (await cli("library", "errors", "photos")).out
    for path in ("older", HOSTILE):
        job = await shelf.job("scan")
        session = await shelf.walked(job)
        await shelf.end(job)
        await shelf.value(
            "INSERT INTO dedup.scan_errors (session_id, path, code) VALUES ($1, $2, 'BUSY')", session, path
        )
    file = await shelf.file("z", None)
    await shelf.value("UPDATE dedup.library_files SET hash_error_code = 'NOT_FOUND' WHERE id = $1", file)
    found = (await cli("library", "errors", "photos", "--json")).json()
    assert [(row["stage"], row["path"], row["code"]) for row in found] == [
        ("scan", HOSTILE, "BUSY"), ("hash", "z", "NOT_FOUND"),
    ]  # fmt: skip
    shown = (await cli("library", "errors", "photos")).out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\x1b" in shown


async def payload_of(shelf: Shelf, run: int) -> Any:
    row = await shelf.rows("SELECT domain, action, payload FROM supervisor.job_run WHERE id = $1", run)
    return row[0]["domain"], row[0]["action"], json.loads(row[0]["payload"])


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ([], {}),
        (["--hash"], {"hash": True}),
        (
            ["--hash", "--algorithm", "sha256", "--only-duplicates"],
            {"hash": True, "algorithm": "sha256", "mode": "duplicates"},
        ),
        (["--thumbs", "--allow-empty"], {"thumbnails": True, "allow_empty": True}),
    ],
)
async def test_a_scan_is_a_run_like_any_other(
    cli: Cli, shelf: Shelf, options: list[str], more: dict[str, Any]
) -> None:
    await shelf.library()
    first = (await cli("library", "scan", "photos", *options, "--json")).json()
    again = (await cli("library", "scan", "photos", *options, "--json")).json()
    assert (first["state"], first["created"], again["created"]) == ("PENDING", True, True)
    assert first["id"] != again["id"]
    assert await payload_of(shelf, first["id"]) == ("dedup", "scan", {"library": "photos", **more})
    jobs = (await cli("job", "list", "--json")).json()
    assert [job["name"] for job in jobs] == ["dedup/scan"], "one definition, made when it was needed"


async def test_who_says_how_to_hash_says_to_hash(cli: Cli, shelf: Shelf) -> None:
    await shelf.library()
    assert (await cli("library", "scan", "photos", "--only-duplicates")).code == 2
    assert (await cli("library", "scan", "photos", "--algorithm", "blake3")).code == 2
    assert (await cli("library", "scan", "photos", "--hash", "--algorithm", "md5")).code == 2
    assert await shelf.value("SELECT count(*) FROM supervisor.job_run") == 0


async def test_it_says_when_nobody_works(cli: Cli, shelf: Shelf) -> None:
    await shelf.library()
    assert "tenure up" in (await cli("library", "scan", "photos")).out


async def test_somebody_who_works_is_not_missed(cli: Cli, shelf: Shelf, scene: Scene) -> None:
    await shelf.library()
    assert "tenure up" not in (await cli("library", "scan", "photos")).out


async def carry_out(scene: Scene, shelf: Shelf, state: str, error: str | None = None) -> None:
    """What a replica does with the run: its scan ends, and it in this state."""
    run = await eventually(lambda: shelf.value("SELECT max(id) FROM supervisor.job_run"), what="a run")
    await scene.assign(run)
    await scene.start(run)
    claim = await shelf.value("SELECT claim_id FROM supervisor.job_run WHERE id = $1", run)
    job = await shelf.value(
        "SELECT id FROM dedup.request_for_run($1, $2, 'scan', 'photos', '{}')", run, claim
    )
    await shelf.walked(
        job, files_seen=1200, bytes_seen=5_000_000, files_new=12, files_changed=3, files_moved=2,
        files_missing=1, error_count=4,
    )  # fmt: skip
    await shelf.end(job, "completed" if error is None else "failed", error)
    await scene.finish(run, state, error)


async def waited(cli: Cli, scene: Scene, shelf: Shelf, *more: str, error: str | None = None) -> Answer:
    await shelf.library()
    waiting = asyncio.create_task(cli("library", "scan", "photos", "--wait", *more))
    await carry_out(scene, shelf, "CANCELED" if error else "SUCCEEDED", error)
    return await waiting


async def test_waiting_ends_with_what_came_of_it(cli: Cli, shelf: Shelf, scene: Scene) -> None:
    answer = await waited(cli, scene, shelf)
    assert answer.code == 0
    assert re.search(r"1,200 files, 5\.0 MB; 12 new, 3 changed, 2 moved, 1 missing, 4 errors", answer.out)


async def test_waiting_for_scripts(cli: Cli, shelf: Shelf, scene: Scene) -> None:
    ended = (await waited(cli, scene, shelf, "--json")).json()
    assert (ended["state"], ended["created"]) == ("SUCCEEDED", True)
    wanted = {
        "kind": "scan",
        "status": "completed",
        "files": 1200,
        "bytes": 5_000_000,
        "new": 12,
        "errors": 4,
    }
    assert wanted.items() <= ended["jobs"][0].items()


async def test_a_failure_exits_1_and_says_why(cli: Cli, shelf: Shelf, scene: Scene) -> None:
    answer = await waited(cli, scene, shelf, error="LIBRARY_LOOKS_EMPTY")
    assert answer.code == 1
    assert "LIBRARY_LOOKS_EMPTY" in answer.out


async def test_ctrl_c_leaves_the_work_and_says_so(database: Urls, shelf: Shelf, tmp_path: Path) -> None:
    """In a process of its own. Nobody works here: that is said meanwhile."""
    await shelf.library()
    command = (sys.executable, "-m", "supervisor.cli", "library", "scan", "photos", "--wait")
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "TENURE_DATABASE_URL": database.control},
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    assert b"nobody works" in await asyncio.wait_for(process.stderr.readline(), patient(30))
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), patient(30))
    run = await shelf.value("SELECT id FROM supervisor.job_run WHERE state = 'PENDING'")
    assert process.returncode == 130
    assert f"tenure run wait {run}" in err.decode()
    assert "Traceback" not in err.decode()
