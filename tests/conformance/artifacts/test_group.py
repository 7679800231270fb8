"""Puts that go to the disk together: each has its own answer, and nothing is told of before it is there."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from supervisor.artifacts import (
    AccessDenied,
    Artifact,
    ArtifactExists,
    ChecksumMismatch,
    NoSpace,
    Overwrite,
    Put,
    StoreFailed,
)
from supervisor.artifacts.group import SMALL_BYTES, TOGETHER
from supervisor.artifacts.local import LocalArtifacts
from tests.support.slowness import patient


@pytest.fixture
def artifacts(tmp_path: Path) -> LocalArtifacts:
    return LocalArtifacts(tmp_path / "artifacts")


async def put_all(
    artifacts: LocalArtifacts, contents: dict[str, bytes], **options: Any
) -> dict[str, BaseException | None]:
    """All at once; the error of each, if it had one."""
    found: dict[str, BaseException | None] = {}

    async def put(key: str, content: bytes) -> None:
        try:
            await artifacts.put(key, content, **options)
        except Exception as error:  # noqa: BLE001  looked at by the test
            found[key] = error
        else:
            found[key] = None

    async with anyio.create_task_group() as group:
        for key, content in contents.items():
            group.start_soon(put, key, content)
    return found


async def test_more_than_go_together_are_all_there(artifacts: LocalArtifacts) -> None:
    contents = {f"a/{n % 3}/{n}": b"%d" % n * (n % 50) for n in range(2 * TOGETHER + 7)}
    contents["a/large"] = b"x" * (SMALL_BYTES + 1)
    assert set((await put_all(artifacts, contents)).values()) == {None}
    for key, content in contents.items():
        assert await artifacts.get(key) == content
    assert list((artifacts._tree.root / "tmp").iterdir()) == []


async def test_those_given_together_are_all_there(artifacts: LocalArtifacts) -> None:
    contents = {f"a/{n % 3}/{n}": b"%d" % n * (n % 50) for n in range(TOGETHER + 7)}
    contents["a/large"] = b"x" * (SMALL_BYTES + 1)
    answers = await artifacts.put_all([Put(key, content) for key, content in contents.items()])
    assert [(one.key, one.size) for one in answers if isinstance(one, Artifact)] == [
        (key, len(content)) for key, content in contents.items()
    ]
    for key, content in contents.items():
        assert await artifacts.get(key) == content
    assert list((artifacts._tree.root / "tmp").iterdir()) == []


async def test_one_that_is_refused_is_alone_with_it(artifacts: LocalArtifacts) -> None:
    await artifacts.put("a/taken", b"before")
    found = await put_all(artifacts, {"a/1": b"1", "a/taken": b"after", "a/2": b"2"})
    assert isinstance(found.pop("a/taken"), ArtifactExists)
    assert set(found.values()) == {None}
    assert await artifacts.get("a/taken") == b"before"
    expected = {"expected_sha256": "0" * 64}
    found = await put_all(artifacts, {"a/3": b"3"}, **expected)
    assert isinstance(found["a/3"], ChecksumMismatch)
    assert not await artifacts.exists("a/3")


async def test_the_same_key_at_the_same_time_has_one_content(artifacts: LocalArtifacts) -> None:
    answers: list[object] = []

    async def put(content: bytes) -> None:
        try:
            answers.append((await artifacts.put("a/b", content, overwrite=Overwrite.SAME)).sha256)
        except ArtifactExists:
            answers.append(None)

    async with anyio.create_task_group() as group:
        for content in (b"same", b"same", b"other"):
            group.start_soon(put, content)
    assert len([answer for answer in answers if answer is None]) in (1, 2)
    assert await artifacts.get("a/b") in (b"same", b"other")


async def test_a_full_disk_is_said_to_whom_it_concerns(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def write(number: int, data: bytes) -> int:
        if bytes(data) == b"too much":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(number, data)

    monkeypatch.setattr(os, "write", write)
    found = await put_all(artifacts, {"a/1": b"1", "a/2": b"too much", "a/3": b"3"})
    assert isinstance(found.pop("a/2"), NoSpace)
    assert set(found.values()) == {None}


async def test_a_directory_that_cannot_be_flushed_is_everybodys(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await artifacts.put("a/0", b"0")
    await artifacts.put("b/0", b"0")
    place = (artifacts._tree.root / "a").stat().st_ino
    real = os.fsync

    def fsync(number: int) -> None:
        if os.fstat(number).st_ino == place:
            raise OSError(errno.EIO, "Input/output error")
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    found = await put_all(artifacts, {"a/1": b"1", "a/2": b"2", "b/1": b"1"})
    assert [type(found[key]) for key in ("a/1", "a/2", "b/1")] == [StoreFailed, StoreFailed, type(None)]


async def test_a_file_that_cannot_be_flushed_gets_no_name(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await artifacts.put("a/0", b"0")
    real = os.fsync

    def fsync(number: int) -> None:
        if os.fstat(number).st_size == len(b"unlucky"):
            raise OSError(errno.EACCES, "Permission denied")
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    found = await put_all(artifacts, {"a/1": b"1", "a/2": b"unlucky"})
    assert (found["a/1"], type(found["a/2"])) == (None, AccessDenied)
    assert not await artifacts.exists("a/2")


async def test_who_is_cancelled_leaves_nobody_behind_and_nothing_undone(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await artifacts.put("a/0", b"0")
    begun, go = threading.Event(), threading.Event()
    real = os.fsync

    def fsync(number: int) -> None:
        begun.set()
        assert go.wait(patient(30))
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    async with anyio.create_task_group() as group:
        for n in range(1, 5):
            group.start_soon(artifacts.put, f"a/{n}", b"%d" % n)
        await anyio.to_thread.run_sync(begun.wait)
        group.cancel_scope.cancel()
        go.set()
    assert [entry.key async for entry in artifacts.entries("a")] == [f"a/{n}" for n in range(5)]
    await artifacts.put("a/5", b"5")
