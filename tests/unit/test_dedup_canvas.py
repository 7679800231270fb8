"""Thumbnails published together: each has its name when its content is on the disk, or keeps its trouble."""

import os
from pathlib import Path

import pytest

from actors.dedup.canvas import Canvas, publish
from actors.dedup.confine import Beneath


def canvas(place: Path, name: str) -> Canvas:
    (place / f".{name}").write_bytes(name.encode())
    return Canvas(
        source=os.open(place / f".{name}", os.O_RDONLY),
        output=os.open(place / f".{name}", os.O_RDWR),
        directory=Beneath(os.open(place, os.O_RDONLY | os.O_DIRECTORY)),
        draft=f".{name}".encode(),
        name=name.encode(),
    )


def test_all_are_synced_before_the_first_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, bytes | int]] = []
    real_sync, real_rename = os.fsync, os.rename

    def sync(handle: int) -> None:
        steps.append(("sync", handle))
        real_sync(handle)

    def rename(draft: bytes, name: bytes, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        steps.append(("rename", name))
        real_rename(draft, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "rename", rename)
    one, two = canvas(tmp_path, "one"), canvas(tmp_path, "two")
    assert publish([one, two]) == [one, two]
    assert steps == [
        ("sync", one.output),
        ("sync", two.output),
        ("rename", b"one"),
        ("rename", b"two"),
        ("sync", one.directory.fd),
        ("sync", two.directory.fd),
    ]
    for each in (one, two):
        each.discard()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_one_that_cannot_be_published_fails_alone_and_leaves_nothing(tmp_path: Path) -> None:
    one, two = canvas(tmp_path, "one"), canvas(tmp_path, "two")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "in the way").touch()
    published, trouble = publish([one, two])
    assert published is one
    assert isinstance(trouble, OSError)
    for each in (one, two):
        each.discard()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
    assert (tmp_path / "one").read_bytes() == b"one"
