"""The sample library, and the commands over it with a real replica at work."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.dedup.sample import sample
from actors.dedup.sample_files import make_library
from supervisor.config import Settings, load_settings
from supervisor.embedded import Urls
from supervisor.store import Store
from tests.support.command_line import command_line
from tests.support.eventually import eventually
from tests.support.libraries import duplicates_in, fingerprint
from tests.support.replica import replica
from tests.support.shelf import Shelf


@pytest.fixture
async def shelf(database: Urls) -> AsyncIterator[Shelf]:
    shelf = await Shelf.open(database)
    yield shelf
    await shelf.close()


@pytest.fixture
async def store(database: Urls) -> AsyncIterator[Store]:
    store = Store(database.control)
    yield store
    await store.close()


def settings_of(database: Urls, libraries: Path | None, state: Path) -> Settings:
    return load_settings(database_url=database.control, libraries_dir=libraries, state_dir=state)


async def runs(shelf: Shelf) -> int:
    count: int = await shelf.value("SELECT count(*) FROM supervisor.job_run")
    return count


async def test_a_sample_is_made_and_asked_for_once(
    database: Urls, store: Store, shelf: Shelf, tmp_path: Path
) -> None:
    settings = settings_of(database, tmp_path / "libraries", tmp_path / "state")
    await sample(store, settings)
    before = fingerprint(tmp_path / "libraries")
    await sample(store, settings)
    assert fingerprint(tmp_path / "libraries") == before
    assert await shelf.rows("SELECT name, root_path FROM dedup.library_roots") == [
        {"name": "sample", "root_path": "sample"}
    ]
    assert await runs(shelf) == 1
    assert len(duplicates_in(tmp_path / "libraries")) > 10
    assert {path.suffix for path in (tmp_path / "libraries").rglob("*.*")} == {
        ".txt", ".jpg", ".png", ".webp", ".mp4",
    }  # fmt: skip


async def test_a_removed_sample_comes_back_whole(
    database: Urls, store: Store, shelf: Shelf, tmp_path: Path
) -> None:
    settings = settings_of(database, tmp_path / "libraries", tmp_path / "state")
    await sample(store, settings)
    await shelf.value("SELECT dedup.remove_library('test', 'sample')")
    await sample(store, settings)
    assert await runs(shelf) == 2, "the new library is scanned too"


async def test_without_a_place_there_is_no_sample(
    database: Urls, store: Store, shelf: Shelf, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    for place in (None, tmp_path / "file" / "libraries"):
        await sample(store, settings_of(database, place, tmp_path / "state"))
    assert await shelf.value("SELECT count(*) FROM dedup.library_roots") == 0
    assert await runs(shelf) == 0


def test_half_a_sample_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_folder: Path) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("actors.dedup.sample_files._video", fail)
    with pytest.raises(OSError, match="full"):
        make_library(tmp_path / "sample")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
async def test_the_commands_over_a_real_library(
    database: Urls, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R000-98, R000-103: the duplicates are those of an oracle; nothing under the library was changed."""
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    make_library(libraries / "things")
    before = fingerprint(libraries)
    monkeypatch.setenv("TENURE_LIBRARIES_DIR", str(libraries))
    monkeypatch.setenv("TENURE_STATE_DIR", str(tmp_path / "state"))
    cli = command_line(database, monkeypatch, tmp_path)
    env = {"TENURE_LIBRARIES_DIR": str(libraries), "TENURE_STATE_DIR": str(tmp_path / "state")}
    assert (await cli("library", "add", "things", "things")).code == 0
    async with replica(database, tmp_path, env=env):
        scanned = (await cli("library", "scan", "things", "--hash", "--thumbs", "--wait", "--json")).json()
        files = sum(path.is_file() for path in libraries.rglob("*"))
        assert [(job["kind"], job["status"]) for job in scanned["jobs"]] == [
            ("scan", "completed"), ("hash", "completed"), ("thumbnail", "completed"),
        ]  # fmt: skip
        assert (scanned["jobs"][0]["files"], scanned["jobs"][0]["new"]) == (files, files)
        found = (await cli("duplicates", "--library", "things", "--json")).json()["groups"]
        groups = {frozenset(str(libraries / "things" / name) for name in group["files"]) for group in found}
        assert groups == duplicates_in(libraries)
        again = (
            await cli("library", "scan", "things", "--hash", "--only-duplicates", "--wait", "--json")
        ).json()
        scan, hashing = again["jobs"]
        assert {"files": files, "new": 0, "changed": 0, "missing": 0}.items() <= scan.items()
        assert hashing["files"] == 0, "what did not change is not read again"
        picture = next(
            group["file_ids"][0] for group in found if group["files"][0].endswith((".jpg", ".png", ".webp"))
        )
        thumb = (await cli("thumbs", "request", str(picture), "--size", "64", "--wait", "--json")).json()
        assert Path(thumb["path"]).stat().st_size == thumb["bytes_size"]
        dry = (await cli("duplicates", "remove", found[0]["group_key"], "--wait", "--json")).json()
        assert (dry["status"], dry["dry_run"]) == ("completed", True)
        assert (await cli("thumbs", "cleanup", thumb["group_key"], "--delay", "0")).code == 0
        gone = "SELECT NOT EXISTS (SELECT FROM dedup.thumbnails WHERE group_key = $1)"
        await eventually(lambda: shelf.value(gone, thumb["group_key"]), timeout=30, what="the cleanup")
        assert not Path(thumb["path"]).exists()
    status = (await cli("library", "status", "things", "--json")).json()
    assert (status["files"], status["to_hash"], status["hash_errors"]) == (files, 0, 0)
    assert fingerprint(libraries) == before
