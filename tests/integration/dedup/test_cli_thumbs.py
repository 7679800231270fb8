"""`tenure thumbs`: asked for, looked at, and removed."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from supervisor.embedded import Urls
from tests.support.command_line import Cli, command_line
from tests.support.eventually import eventually
from tests.support.shelf import SAME, Shelf


@pytest.fixture
def cli(database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    return command_line(database, monkeypatch, tmp_path)


@pytest.fixture
async def shelf(database: Urls) -> AsyncIterator[Shelf]:
    shelf = await Shelf.open(database)
    await shelf.library()
    yield shelf
    await shelf.close()


async def begin(shelf: Shelf) -> None:
    await shelf.value("UPDATE dedup.thumbnails SET status = 'running'")


async def make(shelf: Shelf) -> None:
    await begin(shelf)
    await shelf.value(
        "UPDATE dedup.thumbnails SET status = 'ready', width = 200, height = 100, bytes_size = 1234"
    )


async def test_one_is_asked_for_once(cli: Cli, shelf: Shelf, tmp_path: Path) -> None:
    file = await shelf.file("a\x1b.jpg")
    asked = (await cli("thumbs", "request", str(file), "--json")).json()
    wanted = {"file_id": file, "status": "pending", "format": "webp", "max_dimension": 256, "path": None}
    assert wanted.items() <= asked.items()
    again = (await cli("thumbs", "request", str(file), "--json")).json()
    assert again["thumb_key"] == asked["thumb_key"]
    other = (await cli("thumbs", "request", str(file), "--format", "jpeg", "--size", "64", "--json")).json()
    audited = "SELECT count(*) FROM supervisor.audit WHERE action = 'thumbs.request' AND actor LIKE 'cli:%'"
    assert await shelf.value(audited) == 2, "what was there already is no second one"
    assert other["thumb_key"] != asked["thumb_key"]
    assert await shelf.value("SELECT count(*) FROM dedup.thumbnails") == 2
    await make(shelf)
    shown = (await cli("thumbs", "show", asked["thumb_key"], "--json")).json()
    key = asked["thumb_key"]
    assert shown["path"] == str(tmp_path / ".tenure" / "thumbs" / key[:2] / key[2:4] / f"{key}.webp")
    assert (shown["width"], shown["height"], shown["relative_path"]) == (200, 100, "a\x1b.jpg")
    table = (await cli("thumbs", "show", key)).out
    assert "200 x 100" in table
    assert "\x1b" not in table


@pytest.mark.parametrize(("ends", "code"), [("ready", 0), ("failed", 1)])
async def test_waiting_until_it_is_made_or_not(cli: Cli, shelf: Shelf, ends: str, code: int) -> None:
    file = await shelf.file("a.jpg")
    waiting = asyncio.create_task(cli("thumbs", "request", str(file), "--wait"))
    await eventually(lambda: shelf.value("SELECT count(*) FROM dedup.thumbnails"), what="the request")
    await begin(shelf)
    await shelf.value("UPDATE dedup.thumbnails SET status = $1, error_code = 'THUMB_DECODE_FAILED'", ends)
    answer = await waiting
    assert answer.code == code
    assert ends in answer.out


async def test_what_cannot_be_asked_for(cli: Cli, shelf: Shelf) -> None:
    """R000-28: a full queue is told apart from everything else, and nothing is added."""
    text, picture = await shelf.file("a.txt"), await shelf.file("a.jpg")
    assert (await cli("thumbs", "request", str(text))).code == 2, "neither a picture nor a video"
    assert (await cli("thumbs", "request", "999")).code == 5
    assert (await cli("thumbs", "request")).code == 2
    assert (await cli("thumbs", "request", "1", "--library", "photos")).code == 2
    for bad in (["--size", "15"], ["--size", "2049"], ["--format", "gif"]):
        assert (await cli("thumbs", "request", str(picture), *bad)).code == 2
    await cli("setting", "set", "dedup_thumbnail_capacity", "0")
    full = await cli("thumbs", "request", str(picture), "--json")
    assert full.code == 4
    assert "full" in json.loads(full.err)["error"]
    assert await shelf.value("SELECT count(*) FROM dedup.thumbnails") == 0


async def test_those_of_a_library_are_a_run(cli: Cli, shelf: Shelf) -> None:
    run = (await cli("thumbs", "request", "--library", "photos", "--size", "64", "--json")).json()["id"]
    row = (await shelf.rows("SELECT domain, action, payload FROM supervisor.job_run WHERE id = $1", run))[0]
    assert (row["domain"], row["action"]) == ("dedup", "thumbnails-for-library")
    assert json.loads(row["payload"]) == {"library": "photos", "format": "webp", "max_dimension": 64}
    assert (await cli("thumbs", "request", "--library", "nobody")).code == 5
    assert (await cli("thumbs", "request", "--library", "a b")).code == 2


@pytest.mark.parametrize(
    "key", ["", "x", "0" * 63, "0" * 65, "G" * 64, "A" * 64, "../" * 22, "0" * 63 + "\n"]
)
async def test_a_key_that_is_none(cli: Cli, key: str) -> None:
    assert (await cli("thumbs", "show", "--", key)).code == 2


async def test_an_unknown_key(cli: Cli) -> None:
    gone = await cli("thumbs", "show", "0" * 64)
    assert gone.code == 5
    assert "tenure thumbs request" in gone.err


async def test_cleanup_is_scheduled_once_a_group(cli: Cli, shelf: Shelf) -> None:
    """R000-36: pending, and not before the delay; the setting where none is given."""
    key = f"blake3:{SAME.hex()}"
    first = (await cli("thumbs", "cleanup", key, "--json")).json()
    assert (first["group_key"], first["status"]) == (key, "pending")
    assert (await cli("thumbs", "cleanup", key, "--delay", "0", "--json")).json()["id"] == first["id"]
    later = (
        "SELECT execute_after > now() + interval '9 minutes' FROM dedup.thumbnail_cleanup_jobs WHERE id = $1"
    )
    assert await shelf.value(later, first["id"])
    now = (await cli("thumbs", "cleanup", "file:7", "--delay", "0", "--json")).json()
    assert not await shelf.value(later, now["id"])
    for bad in (
        ["file:0"],
        ["file:x"],
        [key, "--delay", "-1"],
        [key, "--delay", "nan"],
        [key, "--delay", "inf"],
    ):
        assert (await cli("thumbs", "cleanup", *bad)).code == 2, bad
    assert await shelf.value("SELECT count(*) FROM dedup.thumbnail_cleanup_jobs") == 2
