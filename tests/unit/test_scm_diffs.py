"""Diffs on their way to the artifacts, and bulk changes."""

import hashlib
from pathlib import Path

import pytest

from actors.scm.diffs import Diff, Ministat, Spool, bulk_by_lines, bulk_by_paths
from actors.scm.git_diffs import DiffSplitter
from actors.scm.git_log import BadGitLog

A, B, C = "a" * 40, "b" * 40, "c" * 40
NONE = Ministat(0, 0)
OUTPUT = f"{A}\n\ndiff --git a/x b/x\n+one\n{B}\n{C}\n\ndiff --git a/y b/y\n+two\n".encode()


@pytest.mark.parametrize(("paths", "bulk"), [(99, False), (100, False), (101, True), (150, True)])
def test_more_than_a_hundred_paths_are_bulk(paths: int, bulk: bool) -> None:
    """R001-021, R001-022, R001-159."""
    found = bulk_by_paths(paths)
    assert found.is_bulk is bulk
    assert found.reason == (f"large_changeset:{paths}" if bulk else None)
    assert bulk_by_paths(60, 50).is_bulk


@pytest.mark.parametrize(("added", "deleted", "bulk"), [(1000, 0, False), (600, 401, True), (0, 1001, True)])
def test_more_than_a_thousand_lines_are_bulk(added: int, deleted: int, bulk: bool) -> None:
    """R001-029."""
    found = bulk_by_lines(added, deleted)
    assert found.is_bulk is bulk
    assert found.reason == (f"large_changeset:{added + deleted}" if bulk else None)


def test_a_diff_is_kept_with_its_hash_and_size(tmp_path: Path) -> None:
    """R001-033: of exactly what was put in."""
    with Spool(tmp_path, 100) as spool:
        sinks = [spool.sink(name, NONE) for name in ("1", "2")]
        for part in (b"one ", b"two ", b"three"):
            for number, sink in enumerate(sinks):
                sink.write(part * (number + 1))
        first, second = (sink.done() for sink in sinks)
        assert first.read() == b"one two three"
        assert second.read() == b"one one two two threethree"
        assert first.sha256 == hashlib.sha256(b"one two three").hexdigest()
        assert (first.size, first.degraded) == (13, False)
    assert list(tmp_path.iterdir()) == []


def test_a_diff_beyond_the_limit_is_told_of_and_not_kept(tmp_path: Path) -> None:
    """R001-161: as large as the limit is kept, one byte more is not."""
    with Spool(tmp_path, 10) as spool:
        exact, over = spool.sink("1", NONE), spool.sink("2", Ministat(3, 0, 7, 2))
        exact.write(b"x" * 10)
        over.write(b"x" * 10)
        over.write(b"y")
        assert exact.done().read() == b"x" * 10
        degraded = over.done()
    assert (degraded.sha256, degraded.reason) == (None, "diff_too_large:10")
    assert degraded.ministat is not None
    assert degraded.ministat.as_json() == {"files": 3, "bytes_at_least": 11, "additions": 7, "deletions": 2}
    with pytest.raises(ValueError, match="no content"):
        degraded.read()


def split(tmp_path: Path, output: bytes, step: int, limit: int = 1000) -> tuple[list[Diff], list[bytes]]:
    with Spool(tmp_path, limit) as spool:
        splitter = DiffSplitter(spool, dict.fromkeys((A, B, C), NONE))
        for at in range(0, len(output), step):
            splitter.feed(output[at : at + step])
        diffs = splitter.close()
        return diffs, [b"" if diff.degraded else diff.read() for diff in diffs]


@pytest.mark.parametrize("step", [1, 2, 7, 41, 42, 43, 1000])
def test_diffs_are_told_apart_wherever_a_chunk_ends(tmp_path: Path, step: int) -> None:
    diffs, contents = split(tmp_path, OUTPUT, step)
    assert [diff.of for diff in diffs] == [A, B, C]
    assert contents == [b"diff --git a/x b/x\n+one\n", b"", b"diff --git a/y b/y\n+two\n"]


def test_a_line_that_looks_like_a_name_stays_in_its_diff(tmp_path: Path) -> None:
    forged = f"{A}\n\ndiff --git a/x b/x\n+{B}\n {B}\n-{C}\n{B}\n{C}\n".encode()
    _, contents = split(tmp_path, forged, 13)
    assert contents == [f"diff --git a/x b/x\n+{B}\n {B}\n-{C}\n".encode(), b"", b""]


def test_missing_diffs_and_strange_ones_are_no_diffs(tmp_path: Path) -> None:
    for output in (OUTPUT[: OUTPUT.index(C.encode())], b"", b"warning: x\n" + OUTPUT):
        with pytest.raises(BadGitLog):
            split(tmp_path, output, 50)


def test_what_is_cut_off_is_told_of(tmp_path: Path) -> None:
    with Spool(tmp_path, 5) as spool:
        splitter = DiffSplitter(spool, {A: Ministat(1, 0), B: NONE})
        splitter.feed(f"{A}\n\ndiff --git a/x b/x\n".encode() + b"+" * 100)
        assert splitter.too_large
        (only,) = splitter.cut_off()
    assert (only.of, only.reason) == (A, "diff_too_large:5")
    with Spool(tmp_path, 5) as spool:
        (only,) = DiffSplitter(spool, {A: NONE, B: NONE}).cut_off("diff_timeout:1")
    assert (only.of, only.reason) == (A, "diff_timeout:1")
