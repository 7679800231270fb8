"""`tenure duplicates`: the groups in their order, for people, scripts and spreadsheets; and their removal."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from actors.dedup.cli import groups
from supervisor.embedded import Urls
from tests.support.command_line import Cli, command_line
from tests.support.eventually import eventually
from tests.support.shelf import SAME, Shelf

HOSTILE = 'a"b,\x1b[31m\u202e\n=1+1.txt'
OTHER, THIRD, CAPITAL = bytes([1] * 32), bytes([2] * 32), bytes([0xAB] * 32)


@pytest.fixture
def cli(database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    return command_line(database, monkeypatch, tmp_path)


@pytest.fixture
async def shelf(database: Urls) -> AsyncIterator[Shelf]:
    shelf = await Shelf.open(database)
    await shelf.library()
    yield shelf
    await shelf.close()


async def listed(cli: Cli, *more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await cli("duplicates", *more, "--json")).json()["groups"]
    return found


async def test_groups_are_of_equal_content_and_one_algorithm(cli: Cli, shelf: Shelf) -> None:
    """R000-66, R000-67, R000-68, R000-71: present, hashed, twice at least, by algorithm and hash."""
    ids = [await shelf.file("a", size=7), await shelf.file("d/b", size=7)]
    await shelf.file("missing", missing=True, size=7)
    await shelf.file("changed", needs_hash=True, size=7)
    await shelf.file("never hashed", None, size=7)
    await shelf.file("alone", OTHER)
    await shelf.file("by another algorithm", algorithm="sha256")
    assert await listed(cli) == [
        {
            "group_key": f"blake3:{SAME.hex()}",
            "file_count": 2,
            "total_size_bytes": 14,
            "duplicate_waste_bytes": 7,
            "files": ["a", "d/b"],
            "libraries": ["photos", "photos"],
            "file_ids": ids,
        }
    ]


async def test_the_order_of_groups(cli: Cli, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """R000-69, R000-73: files, bytes, algorithm, hash; the same from any page size."""
    for content, algorithm, size, count in (
        (bytes([9] * 32), "blake3", 5, 2),
        (bytes([8] * 32), "sha256", 5, 2),
        (bytes([8] * 32), "blake3", 5, 2),
        (bytes([7] * 32), "blake3", 900, 2),
        (bytes([6] * 32), "blake3", 1, 4),
        (bytes([5] * 32), "blake3", 2, 3),
        (bytes([4] * 32), "blake3", 2, 3),
    ):
        for number in range(count):
            await shelf.file(
                f"{content[:1].hex()}-{algorithm}-{number}", content, size=size, algorithm=algorithm
            )
    wanted = [
        (4, 4, "blake3:06"), (3, 6, "blake3:04"), (3, 6, "blake3:05"), (2, 1800, "blake3:07"),
        (2, 10, "blake3:08"), (2, 10, "blake3:09"), (2, 10, "sha256:08"),
    ]  # fmt: skip
    for page, files in ((10_000, 5_000), (1, 5_000), (2, 1), (3, 2), (10_000, 3)):
        monkeypatch.setattr(groups, "GROUPS", page)
        monkeypatch.setattr(groups, "FILES", files)
        found = await listed(cli)
        assert [(one["file_count"], one["total_size_bytes"], one["group_key"][:9]) for one in found] == wanted
        assert all(len(one["files"]) == one["file_count"] for one in found), (page, files)
        assert all(one["file_ids"] == sorted(one["file_ids"]) for one in found)


async def test_within_one_library_or_across_all(cli: Cli, shelf: Shelf) -> None:
    await shelf.library("other")
    await shelf.file("a", library="photos")
    await shelf.file("b", library="photos")
    await shelf.file("a", library="other")
    await shelf.file("x", OTHER, library="other")
    await shelf.file("y", OTHER, library="photos")
    first, second = await listed(cli)
    assert (first["files"], first["libraries"]) == (["a", "b", "a"], ["photos", "photos", "other"])
    assert second["files"] == ["x", "y"]
    assert [one["files"] for one in await listed(cli, "--library", "photos")] == [["a", "b"]]
    assert await listed(cli, "--library", "other") == []
    assert (await cli("duplicates", "--library", "nobody")).code == 5
    assert (await cli("duplicates", "--library", "a b")).code == 2


async def test_csv_and_json_are_exact_and_people_are_safe(cli: Cli, shelf: Shelf) -> None:
    await shelf.file(HOSTILE, size=3)
    await shelf.file("b", size=3)
    rows = list(csv.reader(io.StringIO((await cli("duplicates", "--csv")).out)))
    key = f"blake3:{SAME.hex()}"
    assert rows == [
        ["group_key", "library", "relative_path", "size_bytes"],
        [key, "photos", HOSTILE, "3"],
        [key, "photos", "b", "3"],
    ]
    assert (await listed(cli))[0]["files"] == [HOSTILE, "b"]
    shown = await cli("duplicates")
    assert shown.code == 0
    assert "\x1b" not in shown.out
    assert "\u202e" not in shown.out
    assert len(shown.out.splitlines()) == 4, "a name does not break a line"
    assert "1 groups, 2 files, 6 bytes, of which 3 bytes wasted" in shown.out
    assert (await cli("duplicates", "--csv", "--json")).code == 2


async def test_nothing_is_found(cli: Cli, shelf: Shelf) -> None:
    assert await listed(cli) == []
    assert (await cli("duplicates", "--csv")).out == "group_key,library,relative_path,size_bytes\n"
    assert "no duplicates" in (await cli("duplicates")).out


async def test_removal_is_a_dry_run_unless_said_otherwise(cli: Cli, shelf: Shelf) -> None:
    """What is kept and what goes is decided here; the oldest stays, or the one that is named."""
    ids = [await shelf.file(name, mtime_ns=time) for name, time in (("a", 30), ("b", 10), (HOSTILE, 20))]
    key = f"blake3:{SAME.hex()}"
    asked = (await cli("duplicates", "remove", key, "--json")).json()
    assert (asked["dry_run"], asked["status"], asked["keep"]["id"]) == (True, "pending", ids[1])
    assert sorted(file["relative_path"] for file in asked["remove"]) == sorted(["a", HOSTILE])
    chosen = await cli("duplicates", "remove", key, "--keep", str(ids[0]))
    assert "dry run" in chosen.out
    assert "\x1b" not in chosen.out
    jobs = await shelf.jobs()
    assert [(job["kind"], job["dry_run"]) for job in jobs] == [("delete", True)] * 2
    assert json.loads(jobs[1]["payload"])["keep"] == ids[0]


async def test_real_removal_needs_the_switch(cli: Cli, shelf: Shelf) -> None:
    await shelf.file("a")
    await shelf.file("b")
    key = f"blake3:{SAME.hex()}"
    refused = await cli("duplicates", "remove", key, "--execute")
    assert refused.code == 4
    assert "tenure setting set dedup_allow_real_delete true" in refused.err
    assert await shelf.jobs() == []
    assert (await cli("setting", "set", "dedup_allow_real_delete", "true")).code == 0
    asked = (await cli("duplicates", "remove", key, "--execute", "--json")).json()
    assert asked["dry_run"] is False
    assert [job["dry_run"] for job in await shelf.jobs()] == [False]


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("failed", 1)])
async def test_waiting_for_a_removal(cli: Cli, shelf: Shelf, status: str, code: int) -> None:
    await shelf.file("a")
    await shelf.file("b")
    waiting = asyncio.create_task(cli("duplicates", "remove", f"blake3:{SAME.hex()}", "--wait"))
    job = await eventually(lambda: shelf.active("delete"), what="the job")
    assert job is not None
    await shelf.end(job, status, "CHANGED" if code else None)
    answer = await waiting
    assert answer.code == code
    assert status in answer.out


@pytest.mark.parametrize(
    "key",
    [
        "",
        "md5:" + SAME.hex(),
        "\udcff",
        *(
            key
            for algorithm in ("blake3", "sha256")
            for key in (
                algorithm,
                f"{algorithm}:",
                f"{algorithm}:{SAME.hex()[:-1]}",
                f"{algorithm}:{SAME.hex()}0",
                f"{algorithm.upper()}:{SAME.hex()}",
                f"{algorithm}:{'g' * 64}",
                f"{algorithm}:{'٣' * 64}",
                f"{algorithm}:{SAME.hex()}\n",
            )
        ),
    ],
)
async def test_a_key_that_is_none_is_refused(cli: Cli, shelf: Shelf, key: str) -> None:
    """R000-72: algorithm, colon and 64 hexadecimal digits, nothing else."""
    assert (await cli("duplicates", "remove", "--", key)).code == 2
    assert (await cli("thumbs", "cleanup", "--", key)).code == 2


@pytest.mark.parametrize("algorithm", ["blake3", "sha256"])
async def test_capital_digits_are_read_and_small_ones_kept(cli: Cli, shelf: Shelf, algorithm: str) -> None:
    """R000-72: as the API does; a group has one spelling in the tables."""
    for path in ("a", "b"):
        await shelf.file(path, CAPITAL, algorithm=algorithm)
    key, typed = f"{algorithm}:{CAPITAL.hex()}", f"{algorithm}:{CAPITAL.hex().upper()}"
    assert (await cli("thumbs", "cleanup", typed, "--json")).json()["group_key"] == key
    assert (await cli("duplicates", "remove", typed)).code == 0
    [job] = await shelf.jobs()
    assert json.loads(job["payload"])["group_key"] == key


async def test_what_is_not_there(cli: Cli, shelf: Shelf) -> None:
    file = await shelf.file("alone")
    key = f"blake3:{SAME.hex()}"
    assert (await cli("duplicates", "remove", key)).code == 5, "one file is no group"
    await shelf.file("b")
    stranger = await shelf.file("c", OTHER)
    assert (await cli("duplicates", "remove", key, "--keep", str(stranger))).code == 2
    assert (await cli("duplicates", "remove", key, "--keep", "0")).code == 2
    assert (await cli("duplicates", "remove", f"blake3:{THIRD.hex()}", "--keep", str(file))).code == 5
    assert await shelf.jobs() == []
