"""A library's files: all of them, in order, and nothing that is not one."""

import itertools
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.dedup import ahead, listing
from actors.dedup.confine import Beneath, library_root
from actors.dedup.listing import Listing, signed
from actors.dedup.trouble import Stopped
from actors.dedup.walk import Batch, Fault, batches
from tests.support.unprivileged import unprivileged


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    return tmp_path / "photos"


@pytest.fixture
def root(library: Path) -> Iterator[Beneath]:
    with library_root(library.parent, "photos") as opened:
        yield opened


def fill(library: Path, *names: str) -> None:
    for name in names:
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text(name)


def paths(walked: Iterator[Batch]) -> list[str]:
    return [path for batch in walked for path in batch.paths]


def test_the_order_is_that_of_whole_paths(root: Beneath, library: Path) -> None:
    fill(library, "a/z", "a.txt", "a-b", "a0", "ab/c", "a/b/c", "a/b.c", "A", "ä", "\U0001f9c0", "z")
    found = paths(batches(root))
    assert found == ["A", "a-b", "a.txt", "a/b.c", "a/b/c", "a/z", "a0", "ab/c", "z", "ä", "\U0001f9c0"]
    assert found == sorted(found, key=str.encode)


def test_odd_names_are_files(root: Beneath, library: Path) -> None:
    fill(library, "~x", "$y", " ", "a\nb", "-rf", "...", "\uf7e9")
    (library / os.fsdecode(b"caf\xe9")).mkdir()
    (library / os.fsdecode(b"caf\xe9") / os.fsdecode(b"\xff\xfe.jpg")).write_bytes(b"odd")
    found = paths(batches(root))
    assert set(found) == {
        "~x", "$y", " ", "a\nb", "-rf", "...", "\uf7ef\uf79f\uf7a9", "caf\uf7e9/\uf7ff\uf7fe.jpg",
    }  # fmt: skip
    for path in found:
        os.close(root.open_file(path))


def test_the_facts_are_the_files_own(root: Beneath, library: Path) -> None:
    fill(library, "a", "d/b")
    os.utime(library / "a", ns=(5, 1_234_567_890_123_456_789))
    (batch,) = batches(root)
    for at, path in enumerate(("a", "d/b")):
        facts = (library / path).stat()
        assert batch.sizes[at] == facts.st_size
        assert batch.mtimes_ns[at] == facts.st_mtime_ns
        assert (batch.inodes[at], batch.devices[at]) == (facts.st_ino, facts.st_dev)
    assert (batch.final, batch.directories, batch.skipped, batch.faults) == (True, 2, 0, [])


def test_inodes_fit_the_database() -> None:
    assert [signed(n) for n in (0, 1, 2**63 - 1, 2**63, 2**64 - 1)] == [0, 1, 2**63 - 1, -(2**63), -1]


def test_links_and_special_files_are_skipped(root: Beneath, library: Path, tmp_path: Path) -> None:
    """R000-100: what lies outside is not scanned."""
    fill(library, "d/file", "z")
    fill(tmp_path / "outside", "secret")
    (library / "out").symlink_to(tmp_path / "outside")
    (library / "d" / "in").symlink_to("file")
    (library / "loop").symlink_to(".")
    (library / "dangling").symlink_to("nothing")
    os.mkfifo(library / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(library)
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
    (batch,) = batches(root)
    assert batch.paths == ["d/file", "z"]
    assert batch.skipped == 6
    assert not batch.faults


def test_the_trash_is_skipped_at_the_root_only(root: Beneath, library: Path) -> None:
    fill(library, ".tenure-trash/x", "d/.tenure-trash/y", ".tenure-trash2/z")
    assert paths(batches(root)) == [".tenure-trash2/z", "d/.tenure-trash/y"]


def test_an_empty_library_is_covered(root: Beneath) -> None:
    (batch,) = batches(root)
    assert (batch.paths, batch.final, batch.after, batch.upto) == ([], True, "", "")


def test_what_cannot_be_read_is_a_fault_and_the_walk_goes_on(root: Beneath, library: Path) -> None:
    fill(library, "a", "closed/x", "half/y", "z")
    (library / "closed").chmod(0)
    (library / "half").chmod(0o444)  # its names can be read, its files cannot be looked at
    with unprivileged():
        (batch,) = batches(root)
    for name in ("closed", "half"):
        (library / name).chmod(0o755)
    assert batch.paths == ["a", "z"]
    assert batch.faults == [Fault("closed", "PERMISSION_DENIED"), Fault("half/y", "PERMISSION_DENIED")]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_fault_stands_in_the_batch_of_its_range(root: Beneath, library: Path, size: int) -> None:
    """Else what lies beneath would be taken for missing."""
    fill(library, "a", "b/x", "c", "d/x", "e/x", "f/1", "f/2", "f/3", "g/1", "g/2", "g/3")
    for closed in ("b", "d", "e"):
        (library / closed).chmod(0)
    (library / "f").chmod(0o444)
    with unprivileged():
        walked = list(batches(root, size=size))
    for closed in ("b", "d", "e", "f"):
        (library / closed).chmod(0o755)
    for path in ("b/x", "d/x", "e/x", "f/1", "f/2", "f/3"):
        (batch,) = (batch for batch in walked if batch.after < path and (path <= batch.upto or batch.final))
        assert any(path == fault.path or path.startswith(fault.path + "/") for fault in batch.faults)
    assert len(walked) > 2


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_file_that_cannot_be_looked_at_stands_in_its_range(
    root: Beneath, library: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(library, *"123456")
    real = os.stat

    def failing(name: str, **how: Any) -> os.stat_result:
        if name in ("2", "5"):
            raise OSError(5, "input/output error")
        return real(name, **how)

    monkeypatch.setattr(listing.os, "stat", failing)  # type: ignore[attr-defined]
    walked = list(batches(root, size=size))
    monkeypatch.undo()
    assert [path for batch in walked for path in batch.paths] == [*"1346"]
    for path in "25":
        (batch,) = (batch for batch in walked if batch.after < path and (path <= batch.upto or batch.final))
        assert Fault(path, "IO_ERROR") in batch.faults
    assert sum(len(batch.faults) for batch in walked) == 2


def test_a_directory_that_vanishes_is_no_fault(
    root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(library, "a", "b/x", "c/x", "d/x")
    real = listing.list_directory

    def vanishing(root: Beneath, prefix: str, after: str) -> Listing:
        if prefix == "b/":
            shutil.rmtree(library / "b")
        if prefix == "c/":
            shutil.rmtree(library / "c")
            (library / "c").write_text("a file now")
        if prefix == "d/":
            shutil.rmtree(library / "d")
            (library / "d").symlink_to("/")
        return real(root, prefix, after)

    monkeypatch.setattr(ahead, "list_directory", vanishing)
    (batch,) = batches(root)
    assert batch.paths == ["a"]
    assert batch.faults == [Fault("d", "ESCAPES_LIBRARY")]


def test_a_file_that_vanishes_is_missing(
    root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(library, "a", "b", "c")
    real = listing.take_facts

    def late(fd: int, prefix: str, names: list[str], *_: object) -> listing.Facts:
        (library / "b").unlink()
        (library / "c").unlink()
        (library / "c").symlink_to("a")
        return real(fd, prefix, names)

    monkeypatch.setattr(listing, "take_facts", late)
    (batch,) = batches(root)
    assert (batch.paths, batch.skipped, batch.faults) == (["a"], 1, [])


def test_only_what_lies_behind_is_listed_again(
    root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(library, "a/x", "b/c/x", "b/d/x", "b/d/y", "b/e/x", "c/x")
    listed: list[str] = []
    real = listing.list_directory

    def counted(root: Beneath, prefix: str, after: str) -> Listing:
        listed.append(prefix)
        return real(root, prefix, after)

    monkeypatch.setattr(ahead, "list_directory", counted)
    assert paths(batches(root, "b/d/x")) == ["b/d/y", "b/e/x", "c/x"]
    assert listed == ["", "b/", "b/d/", "b/e/", "c/"]


def test_batches_are_about_as_large_as_asked(root: Beneath, library: Path) -> None:
    fill(library, *(f"{n % 7}/{n}" for n in range(100)))
    for size in (1, 3, 10, 99, 1000):
        walked = list(batches(root, size=size))
        assert [batch.final for batch in walked] == [False] * (len(walked) - 1) + [True]
        assert all(len(batch.paths) <= size for batch in walked)
        assert len(walked) <= 100 // size + 8 // size + 2
        for one, other in itertools.pairwise(walked):
            assert one.upto == other.after
        assert sum(batch.directories for batch in walked) == 8


def test_directories_without_files_end_a_batch_too(root: Beneath, library: Path) -> None:
    """A walk through many of them can be resumed and is seen to move."""
    for n in range(50):
        (library / f"{n:02}").mkdir()
    walked = list(batches(root, size=10))
    assert len(walked) >= 5
    assert sum(batch.directories for batch in walked) == 51
    assert (
        sum(batch.directories for batch in batches(root, walked[0].upto, size=10))
        == 51 - walked[0].directories
    )


def test_a_large_directory_is_looked_at_in_stretches(
    root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "STRETCH", 4)
    fill(library, *(f"{n:03}" for n in range(30)), *(f"{n:03}d/x" for n in range(0, 30, 7)))
    wanted = sorted(str(path.relative_to(library)) for path in library.rglob("*") if path.is_file())
    assert paths(batches(root, size=5)) == wanted
    assert paths(batches(root, "013", size=5)) == [path for path in wanted if path > "013"]
    walked = batches(root, size=3)
    first = next(walked)
    fill(library, "aside/x")
    shutil.rmtree(library / "007d")
    for n in range(10, 30):
        (library / f"{n:03}").unlink()
    rest = paths(walked)
    assert first.paths == wanted[:3]
    assert [path for path in rest if "/" not in path and path >= "012"] == []


def test_listings_made_ahead_change_nothing(
    root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where listing waits, threads list what comes next; the order and the batches are the same."""
    fill(library, *(f"{n % 5}/{n % 9}/{n}" for n in range(200)))
    plain = [(batch.paths, batch.upto, batch.directories) for batch in batches(root, size=17, threads=1)]
    real, made_by = listing.list_directory, set()

    def waiting(root: Beneath, prefix: str, after: str) -> Listing:
        made_by.add(threading.current_thread().name)
        time.sleep(0.002)
        return real(root, prefix, after)

    monkeypatch.setattr(ahead, "list_directory", waiting)
    assert [
        (batch.paths, batch.upto, batch.directories) for batch in batches(root, size=17, threads=3)
    ] == plain
    assert len(made_by) > 1
    walked = batches(root, size=17, threads=3)
    next(walked)
    walked.close()  # type: ignore[attr-defined]
    assert not [one for one in threading.enumerate() if one.name.startswith("listing")]


def chain(library: Path, names: list[str]) -> None:
    """Directories in each other, deeper than a path can name."""
    here = os.open(library, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@pytest.mark.parametrize("depth", [50, 5000])
def test_a_deep_tree(root: Beneath, library: Path, depth: int) -> None:
    chain(library, ["d"] * depth)
    fill(library, "a", "d/e", "e")
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    walked = batches(root)
    assert paths(walked) == ["a", "d/" * depth + "bottom", "d/e", "e"]
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before
    assert paths(batches(root, "d/" * depth)) == ["d/" * depth + "bottom", "d/e", "e"]
    subprocess.run(["rm", "-rf", str(library / "d")], check=True)  # noqa: S607  shutil.rmtree recurses


def test_too_deep_or_too_long_is_a_fault(root: Beneath, library: Path) -> None:
    fill(library, "a/b/c/d", "a/b/x", "z", "ä" * 30 + "/" + "ö" * 30 + "/x", "ä" * 30 + "/y")
    (batch,) = batches(root, deepest=2)
    assert batch.paths == ["a/b/x", "z", "ä" * 30 + "/y", "ä" * 30 + "/" + "ö" * 30 + "/x"]
    assert batch.faults == [Fault("a/b/c", "TOO_DEEP")]
    (batch,) = batches(root, longest_bytes=100)
    assert batch.paths == ["a/b/c/d", "a/b/x", "z", "ä" * 30 + "/y"]
    assert batch.faults == [Fault("ä" * 30 + "/" + "ö" * 30, "NAME_TOO_LONG")]
    (batch,) = batches(root, longest_bytes=62)
    assert (
        batch.faults
        == [
            Fault("ä" * 30 + "/y", "NAME_TOO_LONG"),
            Fault("ä" * 30 + "/" + "ö" * 30, "NAME_TOO_LONG"),
        ]
        or batch.paths[-1] == "ä" * 30 + "/y"
    )


def test_a_directory_that_is_its_own_ancestor_is_a_fault(
    root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a bind mount of a directory into itself looks; the mount itself needs privileges."""
    fill(library, "a/b/c/x", "z")
    above = (library / "a").stat()
    real = listing.list_directory

    def looped(root: Beneath, prefix: str, after: str) -> Listing:
        made = real(root, prefix, after)
        if prefix == "a/b/c/":
            made.identity = (above.st_dev, above.st_ino)
        return made

    monkeypatch.setattr(ahead, "list_directory", looped)
    (batch,) = batches(root)
    assert batch.paths == ["z"]
    assert batch.faults == [Fault("a/b/c", "DIRECTORY_LOOP")]


def test_a_failing_directory_is_unknown_not_empty(
    root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails in the middle of a directory: nothing of it is said to be missing."""
    fill(library, "a/1", "a/2", "b")
    real = listing._read

    def failing(made: Listing, fd: int) -> None:
        real(made, fd)
        if made.prefix:
            raise OSError(5, "input/output error")

    monkeypatch.setattr(listing, "_read", failing)
    (batch,) = batches(root)
    assert (batch.paths, batch.faults) == (["b"], [Fault("a", "IO_ERROR")])


def test_a_walk_that_is_told_to_stop_stops_in_the_middle_of_a_directory(root: Beneath, library: Path) -> None:
    fill(library, *(f"f{number:04}" for number in range(1000)))
    looks = 0

    def soon() -> bool:
        nonlocal looks
        looks += 1
        return looks > 4

    root.should_stop = soon
    with pytest.raises(Stopped):
        list(batches(root))
    assert looks == 5
