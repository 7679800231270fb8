"""What is shown while work is followed: bars on a terminal, lines elsewhere; and the sums at its end."""

import asyncio
import os
import pty
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.dedup.cli import work
from supervisor.embedded import Urls
from tests.support.eventually import eventually
from tests.support.scene import Scene
from tests.support.shelf import Shelf
from tests.support.slowness import patient


def job(**facts: Any) -> dict[str, Any]:
    """A scan that has seen 1500 files of the 3000 that the last one saw."""
    return {
        "id": 1,
        "kind": "scan",
        "library": "photos",
        "status": "running",
        "progress": 0.0,
        "total_items": None,
        "processed_items": 0,
        "error_code": None,
        "error_message": None,
        "files_seen": 1500,
        "bytes_seen": 2_000_000,
        "files_new": 1,
        "files_changed": 2,
        "files_moved": 3,
        "files_missing": 4,
        "error_count": 5,
        "seconds": 3.0,
        "expected": 3000,
        **facts,
    }


HASH = {"kind": "hash", "files_seen": None, "bytes_seen": None, "error_count": None, "expected": None}


def test_files_bytes_rate_and_errors() -> None:
    assert work.figures(job()) == "1,500 files, 2.0 MB, 500 files/s, 5 errors"
    assert work.figures(job(**HASH, total_items=10, processed_items=6)) == "6 of 10 files, 2 files/s"
    waiting = job(files_seen=None, bytes_seen=None, error_count=None, seconds=None, status="pending")
    assert work.figures(waiting) == "0 files"
    assert "will be tried again: LEASE_EXPIRED" in work.figures(
        job(status="retryable", error_code="LEASE_EXPIRED")
    )


def test_how_much_of_it_is_done() -> None:
    assert work.done_share(job()) == 0.5
    assert work.done_share(job(expected=None)) is None, "nobody knows how much there is"
    assert work.done_share(job(files_seen=9000)) == 0.99, "more than last time"
    assert work.done_share(job(**HASH, total_items=10, processed_items=6)) == 0.6
    assert work.done_share(job(**HASH)) is None
    assert work.done_share(job(status="completed", expected=None)) == 1.0


def test_the_summary_of_each_kind() -> None:
    assert work.summary(job(status="completed")) == (
        "scan of photos completed in 3.0s: 1,500 files, 2.0 MB; "
        "1 new, 2 changed, 3 moved, 4 missing, 5 errors"
    )
    ended = job(**HASH, status="completed", total_items=10, processed_items=6, library=None)
    assert work.summary(ended) == "hash of all libraries completed in 3.0s: 10 files hashed"
    failed = job(**{**HASH, "kind": "thumbnail"}, status="failed", error_code="X", error_message="why")
    assert work.summary(failed) == "thumbnail of photos failed in 3.0s: X why; 0 thumbnails"


def test_without_a_terminal_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    display = work.Display()
    for status in ("pending", "running", "running", "completed"):
        display.update([job(status=status)])
    out, err = capsys.readouterr()
    assert out == "", "the answer alone is on stdout"
    assert [line.split(",")[0] for line in err.splitlines()] == [
        "scan of photos: pending",
        "scan of photos: running",
        "scan of photos: completed",
    ]


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    try:
        yield ours, theirs
    finally:
        os.close(ours)


class Screen:
    """All that was written to it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.text = ""

    def shows(self, pattern: str) -> bool:
        try:
            while data := os.read(self._fd, 65536):
                self.text += data.decode(errors="replace")
        except OSError:  # nothing more just now, or the other end is closed
            pass
        assert re.search(pattern, self.text), self.text
        return True


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    scene = await Scene.open(database)
    await scene.lead("w1")
    await scene.beat("w1")
    await scene.connection.execute("UPDATE supervisor.worker SET domains = '{dedup}'")
    yield scene
    await scene.close()


async def test_on_a_terminal_a_bar_moves(database: Urls, scene: Scene, tmp_path: Path) -> None:
    shelf = await Shelf.open(database)
    await shelf.library()
    command = (sys.executable, "-m", "supervisor.cli", "library", "scan", "photos", "--wait")
    environment = {**os.environ, "TENURE_DATABASE_URL": database.control, "TERM": "xterm", "COLUMNS": "120"}
    with terminal() as (ours, theirs):
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=theirs
        )
        os.close(theirs)
        screen = Screen(ours)
        run = await eventually(lambda: shelf.value("SELECT max(id) FROM supervisor.job_run"), timeout=30)
        await scene.assign(run)
        await scene.start(run)
        claim = await shelf.value("SELECT claim_id FROM supervisor.job_run WHERE id = $1", run)
        scan = await shelf.value(
            "SELECT id FROM dedup.request_for_run($1, $2, 'scan', 'photos', '{}')", run, claim
        )
        await shelf.begin(scan)
        await shelf.walked(scan, files_seen=4321, error_count=2)
        await eventually(lambda: screen.shows(r"scan of photos.*4,321 files.*2 errors"), what="the bar")
        await shelf.end(scan)
        await scene.finish(run)
        out, _ = await asyncio.wait_for(process.communicate(), patient(30))
    assert process.returncode == 0
    assert b"scan of photos completed" in out
    assert b"\x1b" not in out
    await shelf.close()
