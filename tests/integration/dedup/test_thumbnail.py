"""Handlers of thumbnails side by side: asked and opened together, made in turn, published together."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import uuid4

import anyio
import pytest
from anyio.lowlevel import checkpoint

from actors.dedup.thumbnail import SLOTS, Studio, equip, handle
from supervisor import Claim, Done, Outcome, Retry
from supervisor.actor import Place
from supervisor.clock import boottime
from supervisor.config import Settings
from tests.support import pictures

PICTURE: Final = pictures.encoded("png")


class Shelf:
    """A library of pictures, and a store that knows where they are."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.questions: list[list[int]] = []
        self.outcomes: dict[int, Outcome] = {}
        self.files: list[Path] = []
        (place / "libraries" / "photos").mkdir(parents=True)

    def add(self, content: bytes) -> int:
        file = self.place / "libraries" / "photos" / f"{len(self.files)}.png"
        file.write_bytes(content)
        self.files.append(file)
        return len(self.files) - 1

    async def rows(self, query: str, *args: Any, timeout: float | None = None) -> Sequence[Mapping[Any, Any]]:
        if query == "read_thumbnail_rate":
            return [{0: 0.0}]
        assert (query, timeout is not None) == ("read_thumbnail_sources", True)
        self.questions.append(args[0])
        return [
            {"id": file, "root_path": "photos", "relative_path": self.files[file].name, "is_missing": False}
            for file in args[0]
            if file < len(self.files)
        ]

    async def make(self, studio: Studio, file: int) -> None:
        self.outcomes[file] = await handle(self._claim(file), self._tools(studio))

    def _claim(self, file: int) -> Claim:
        known = file < len(self.files) and self.files[file].exists()
        facts = self.files[file].stat() if known else os.stat_result([0] * 10)
        payload = {
            "file_id": file,
            "format": "webp",
            "max_dimension": 32,
            "source_size": facts.st_size,
            "source_mtime_ns": facts.st_mtime_ns,
            "output_relpath": f"a/{file % 2}/{file}.webp",
        }
        return Claim(0, 0, 0, 0, uuid4(), "dedup", None, payload, None, file)

    def _tools(self, studio: Studio) -> Any:
        return SimpleNamespace(equipment=studio, stop_deadline=lambda: boottime() + 60)

    @property
    def at(self) -> Place:
        settings = Settings(libraries_dir=self.place / "libraries", state_dir=self.place / "state")
        return Place("worker", settings, cast("Any", self), cast("Any", self))

    def made(self) -> list[str]:
        thumbs = self.place / "state" / "thumbs"
        return sorted(str(path.relative_to(thumbs)) for path in thumbs.rglob("*") if path.is_file())


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


async def test_each_has_its_own_outcome(shelf: Shelf) -> None:
    good = [shelf.add(PICTURE) for _ in range(SLOTS)]
    damaged = shelf.add(PICTURE[:200])
    gone = shelf.add(b"")
    shelf.files[gone].unlink()
    unknown = len(shelf.files)
    async with equip(shelf.at) as studio, anyio.create_task_group() as group:
        for file in (*good, damaged, gone, unknown):
            group.start_soon(shelf.make, studio, file)
    assert shelf.questions == [[*good, damaged, gone, unknown]], "they were asked for one by one"
    assert all(isinstance(shelf.outcomes[file], Done) for file in good)
    codes = {file: cast("Retry", shelf.outcomes[file]).error_code for file in (damaged, gone, unknown)}
    assert codes == {
        damaged: "THUMB_DECODE_FAILED",
        gone: "THUMB_NOT_FOUND",
        unknown: "THUMB_SOURCE_MISSING",
    }
    assert shelf.made() == sorted(f"a/{file % 2}/{file}.webp" for file in good), "a draft was left"


async def test_who_is_stopped_leaves_nothing_open_and_no_draft(shelf: Shelf) -> None:
    files = [shelf.add(PICTURE) for _ in range(SLOTS)]
    async with equip(shelf.at) as studio:
        await shelf.make(studio, files[0])
        before = open_files()
        async with anyio.create_task_group() as group:
            for file in files[1:]:
                group.start_soon(shelf.make, studio, file)
            while len(shelf.questions) < 2:
                await checkpoint()
            group.cancel_scope.cancel()
        assert len(open_files() - before) <= 2 * studio.chambers.size, "files stayed open"
    assert not [name for name in shelf.made() if Path(name).name.startswith(".")]
