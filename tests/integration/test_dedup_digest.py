"""Hashes of files: of one unchanged state, or none."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from actors.dedup import digest, hashing
from actors.dedup.confine import Beneath, library_root
from actors.dedup.digest import Digest, Failure, hash_file, hash_files
from actors.dedup.parents import Parents
from tests.support.unprivileged import unprivileged

MIB = 1024 * 1024


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files written just now count as settled: what the test is about is not the waiting."""
    monkeypatch.setattr(digest, "QUIET_NS", -1)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    return tmp_path / "photos"


@pytest.fixture
def root(library: Path) -> Iterator[Beneath]:
    with library_root(library.parent, "photos") as opened:
        yield opened


def scanned(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns


def content(size: int) -> bytes:
    return bytes(range(256)) * (size // 256) + b"x" * (size % 256)


SIZES = [0, 1, 4096, 64 * 1024, 64 * 1024 + 1, MIB, MIB + 1, 16 * MIB + 3]


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("size", SIZES)
def test_the_hash_is_that_of_the_contents(root: Beneath, library: Path, size: int) -> None:
    data = content(size)
    (library / "x").write_bytes(data)
    expected = scanned(library / "x")
    facts = (library / "x").stat()
    for algorithm, value in (("blake3", blake3(data).digest()), ("sha256", hashlib.sha256(data).digest())):
        one = hash_file(root, "x", algorithm, expected)  # type: ignore[arg-type]
        assert one == Digest(value, *expected, facts.st_ino, facts.st_dev, whole=True)
        assert hash_files(root, [("x", *expected)], algorithm) == [one]  # type: ignore[arg-type]


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("prefix_bytes", [4096, 100_000])
def test_a_prefix(root: Beneath, library: Path, size: int, prefix_bytes: int) -> None:
    data = content(size)
    (library / "x").write_bytes(data)
    expected = scanned(library / "x")
    result = hash_file(root, "x", "blake3", expected, prefix_bytes=prefix_bytes)
    assert isinstance(result, Digest)
    assert result.value == blake3(data[:prefix_bytes]).digest()
    assert result.whole == (size <= prefix_bytes)
    assert result.size == size
    assert hash_files(root, [("x", *expected)], prefix_bytes=prefix_bytes) == [result]
    with Parents(root) as parents:  # as if the file were old
        wanted = min(size, prefix_bytes)
        assert digest._hash_small(parents, "x", expected, wanted, "blake3", 1 << 63) == result


def test_a_slice_has_a_result_for_each_item(root: Beneath, library: Path, tmp_path: Path) -> None:
    """In order, whatever each of them is; R000-100: nothing outside is read."""
    (library / "d").mkdir()
    names = ["a", "d/b", "d/c", "caf\uf7e9", "big"]
    for name in names:
        (library / name.replace("\uf7e9", "\udce9")).write_bytes(
            name.encode() * (40_000 if name == "big" else 1)
        )
    (tmp_path / "secret").write_bytes(b"outside")
    (library / "link").symlink_to(tmp_path / "secret")
    (library / "d" / "out").symlink_to(tmp_path)
    os.mkfifo(library / "pipe")
    good = [(name, *scanned(library / name.replace("\uf7e9", "\udce9"))) for name in names]
    outside = scanned(tmp_path / "secret")
    bad = {
        "link": "ESCAPES_LIBRARY",
        "d/out/secret": "ESCAPES_LIBRARY",
        "../secret": "ESCAPES_LIBRARY",
        str(tmp_path / "secret"): "ESCAPES_LIBRARY",
        "pipe": "SPECIAL_FILE",
        "d": "SPECIAL_FILE",
        "gone": "NOT_FOUND",
        "gone/x": "NOT_FOUND",
        "a/x": "NOT_A_DIRECTORY",
        "": "BAD_PATH",
        "d//b": "BAD_PATH",
        "a\0": "BAD_PATH",
        "\uf7c3\uf7a4": "BAD_PATH",
        "d/..": "ESCAPES_LIBRARY",
    }
    own = {path: os.lstat(library / path) for path in ("pipe", "d")}  # the link: its target's
    facts = {path: (its.st_size, its.st_mtime_ns) for path, its in own.items()}
    mixed = [*good, *((path, *facts.get(path, outside)) for path in bad), *good]
    for wait in (False, True):
        if wait:
            age(library, good)
        results = hash_files(root, mixed)
        alone = [hash_file(root, path, "blake3", (size, mtime_ns)) for path, size, mtime_ns in mixed]
        assert results == alone
        hashed = [result.value for result in results if isinstance(result, Digest)]
        assert (
            hashed
            == [blake3((library / n.replace("\uf7e9", "\udce9")).read_bytes()).digest() for n in names] * 2
        )
        assert [result.code for result in results if isinstance(result, Failure)] == list(bad.values())


def age(library: Path, items: list[tuple[str, int, int]]) -> None:
    """Until the files are old enough for the smooth way."""
    newest = max((library / path.replace("\uf7e9", "\udce9")).stat().st_ctime_ns for path, _, _ in items)
    while time.clock_gettime_ns(digest.CLOCK_REALTIME_COARSE) < newest + 2 * digest.SECOND_NS + 10_000_000:
        time.sleep(0.05)


@pytest.mark.usefixtures("old")
def test_another_state_than_the_scanned_one(root: Beneath, library: Path) -> None:
    (library / "x").write_bytes(b"now")
    size, mtime_ns = scanned(library / "x")
    for other in ((size + 1, mtime_ns), (size, mtime_ns - 1)):
        assert hash_file(root, "x", "blake3", other) == Failure("CHANGED_SINCE_SCAN")
        assert hash_files(root, [("x", *other)]) == [Failure("CHANGED_SINCE_SCAN")]
    assert isinstance(hash_file(root, "x", "blake3"), Digest)


@pytest.mark.usefixtures("old")
def test_a_file_of_others(root: Beneath, library: Path) -> None:
    (library / "x").write_bytes(b"mine")
    (library / "x").chmod(0)
    with unprivileged():
        assert hash_file(root, "x") == Failure("PERMISSION_DENIED")
        assert hash_files(root, [("x", *scanned_fd(root, "x"))]) == [Failure("PERMISSION_DENIED")]


def scanned_fd(root: Beneath, name: str) -> tuple[int, int]:
    facts = os.stat(name, dir_fd=root.fd)
    return facts.st_size, facts.st_mtime_ns


@pytest.mark.usefixtures("old")
def test_a_disk_that_fails(root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(fd: int, *_: object) -> int:
        raise OSError(5, "input/output error")

    (library / "x").write_bytes(content(MIB))
    monkeypatch.setattr(hashing.os, "readv", failing)  # type: ignore[attr-defined]
    assert hash_file(root, "x") == Failure("IO_ERROR")


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> list[int]:
    """`act(n)` after the n-th reading and before the look that follows it."""
    calls: list[int] = []
    real = hashing.hash_open

    def acted(*arguments: object, **named: object) -> bytes | None:
        value = real(*arguments, **named)  # type: ignore[arg-type]
        calls.append(len(calls))
        act(calls[-1])
        return value

    monkeypatch.setattr(digest, "hash_open", acted)
    return calls


@pytest.mark.usefixtures("old")
def test_a_change_while_it_is_read_is_hashed_again(
    root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never is a hash given for a state the file does not have: also with the old size and mtime put back."""
    (library / "x").write_bytes(b"first")
    expected = scanned(library / "x")

    def change(n: int) -> None:
        if n == 0:
            (library / "x").write_bytes(b"other")
            os.utime(library / "x", ns=(0, expected[1]))

    calls = between(monkeypatch, change)
    result = hash_file(root, "x", "blake3", expected)
    assert isinstance(result, Digest)
    assert result.value == blake3(b"other").digest()
    assert len(calls) == 2


@pytest.mark.usefixtures("old")
def test_a_slice_hashes_again_too(root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (library / "x").write_bytes(b"first")
    expected = scanned(library / "x")
    age(library, [("x", *expected)])
    real, calls = hashing.hash_bytes, []

    def change(data: bytes, algorithm: hashing.Algorithm) -> bytes:
        calls.append(data)
        (library / "x").write_bytes(b"other")
        os.utime(library / "x", ns=(0, expected[1]))
        return real(data, algorithm)

    monkeypatch.setattr(digest, "hash_bytes", change)
    (result,) = hash_files(root, [("x", *expected)])
    assert calls == [b"first"]
    assert isinstance(result, Digest)
    assert result.value == blake3(b"other").digest()


@pytest.mark.usefixtures("old")
def test_a_file_replaced_while_it_is_read_is_opened_again(
    root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (library / "x").write_bytes(b"first")
    (library / "new").write_bytes(b"a newer one")

    def replace(n: int) -> None:
        if n == 0:
            (library / "new").replace(library / "x")

    expected = scanned(library / "x")
    between(monkeypatch, replace)
    result = hash_file(root, "x", "blake3", expected)
    facts = (library / "x").stat()
    value = blake3(b"a newer one").digest()
    assert result == Digest(value, 11, facts.st_mtime_ns, facts.st_ino, facts.st_dev, whole=True)


@pytest.mark.usefixtures("old")
def test_a_file_that_never_rests_is_given_up(
    root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (library / "x").write_bytes(b"0")

    def append(n: int) -> None:
        with (library / "x").open("ab") as file:
            file.write(b"more")

    calls = between(monkeypatch, append)
    assert hash_file(root, "x") == Failure("CHANGING")
    assert len(calls) == digest.ATTEMPTS


def test_a_fresh_change_is_waited_for(root: Beneath, library: Path) -> None:
    """Two writes in one tick of the clock look alike, and so does one that goes on while the file is read."""
    (library / "x").write_bytes(b"first")
    expected = scanned(library / "x")
    asked = 0

    def write_in_the_same_moment() -> bool:
        nonlocal asked
        asked += 1
        if asked == 1:
            (library / "x").write_bytes(b"other")
            os.utime(library / "x", ns=(0, expected[1]))
        return False

    result = hash_file(root, "x", "blake3", expected, should_stop=write_in_the_same_moment)
    assert isinstance(result, Digest)
    assert result.value == blake3(b"other").digest()
    assert asked > 3


def test_waiting_for_a_fresh_file_stops(root: Beneath, library: Path) -> None:
    (library / "x").write_bytes(b"first")
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2

    assert hash_file(root, "x", should_stop=stop) == Failure("STOPPED")


@pytest.mark.parametrize(
    ("size", "cut"), [(0, 1), (10, -1), (10, 1), (64 * 1024 + 1, -1), (3 * MIB, -1), (3 * MIB, 1)]
)
def test_other_lengths_than_looked_at(
    root: Beneath, library: Path, size: int, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Truncated or grown between the look and the reading: no hash of it."""
    (library / "x").write_bytes(content(size))

    def late(*_: object) -> bool:
        os.truncate(library / "x", size + cut)
        return True

    monkeypatch.setattr(digest, "_settled", late)
    real = root.open_regular

    def reset(path: str | bytes) -> tuple[int, os.stat_result]:
        os.truncate(library / "x", size)
        return real(path)

    monkeypatch.setattr(root, "open_regular", reset)
    assert hash_file(root, "x") == Failure("CHANGING")


@pytest.mark.parametrize("size", [0, 10, 64 * 1024, 64 * 1024 + 1, 2 * MIB])
def test_bytes_are_counted(library: Path, size: int) -> None:
    (library / "x").write_bytes(content(size))

    def hashed(wanted: int, *, to_the_end: bool) -> bytes | None:
        with (library / "x").open("rb", buffering=0) as file:
            return hashing.hash_open(file.fileno(), wanted, "blake3", digest.never, to_the_end=to_the_end)

    assert hashed(size, to_the_end=True) == blake3(content(size)).digest()
    assert hashed(size + 1, to_the_end=True) is None
    assert hashed(size + 1, to_the_end=False) is None
    if size:
        assert hashed(size - 1, to_the_end=True) is None
        assert hashed(size - 1, to_the_end=False) == blake3(content(size)[:-1]).digest()


@pytest.mark.usefixtures("old")
def test_a_file_with_more_than_it_says_has_no_hash() -> None:
    """The files of /proc say that they are empty."""
    with library_root(Path("/proc"), "sys") as root:
        size, mtime_ns = scanned(Path("/proc/sys/kernel/ostype"))
        assert size == 0
        with Parents(root) as parents:
            assert digest._hash_small(parents, "kernel/ostype", (0, mtime_ns), 0, "blake3", 1 << 63) is None
        assert hash_file(root, "kernel/ostype", "blake3", (size, mtime_ns)) == Failure("CHANGING")


def test_a_file_truncated_under_the_reader(root: Beneath, library: Path) -> None:
    """A thread cuts and fills it all the time: every hash that is given is one of a whole state."""
    full, empty = b"A" * (2 * MIB), b""
    (library / "x").write_bytes(full)
    done = threading.Event()

    def cut() -> None:
        with (library / "x").open("r+b", buffering=0) as file:
            while not done.is_set():
                file.truncate(0)
                file.seek(0)
                file.write(full)

    writer = threading.Thread(target=cut)
    writer.start()
    try:
        results = [hash_file(root, "x") for _ in range(10)]
    finally:
        done.set()
        writer.join()
    whole = {blake3(full).digest(), blake3(empty).digest()}
    assert all(
        result.value in whole
        for result in results
        if isinstance(result, Digest) and result.size in (0, len(full))
    )
    assert {result.code for result in results if isinstance(result, Failure)} <= {"CHANGING"}
    assert any(isinstance(result, Failure) for result in results)


def test_a_file_rewritten_under_the_reader(root: Beneath, library: Path) -> None:
    """A thread turns all A into all B and back, in place: a mixture is never hashed."""
    states = [bytes([letter]) * (4 * MIB) for letter in b"AB"]
    (library / "x").write_bytes(states[0])
    done = threading.Event()

    def rewrite() -> None:
        with (library / "x").open("r+b", buffering=0) as file:
            while not done.is_set():
                for state in states:
                    file.seek(0)
                    file.write(state)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        results = [hash_file(root, "x") for _ in range(10)]
    finally:
        done.set()
        writer.join()
    whole = {blake3(state).digest() for state in states}
    assert all(result.value in whole for result in results if isinstance(result, Digest))
    assert Failure("CHANGING") in results
    assert isinstance(hash_file(root, "x"), Digest)


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("algorithm", ["blake3", "sha256"])
def test_it_stops_between_two_chunks(root: Beneath, library: Path, algorithm: hashing.Algorithm) -> None:
    (library / "x").write_bytes(content(20 * MIB))
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    assert hash_file(root, "x", algorithm, should_stop=stop) == Failure("STOPPED")
    assert asked < 8


def test_a_stopped_slice_says_so_of_the_rest(root: Beneath, library: Path) -> None:
    items = []
    for n in range(5):
        (library / str(n)).write_bytes(b"x")
        items.append((str(n), *scanned(library / str(n))))
    age(library, items)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2

    results = hash_files(root, items, should_stop=stop)
    assert [isinstance(result, Digest) for result in results] == [True, True, False, False, False]
    assert set(results[2:]) == {Failure("STOPPED")}


def test_nothing_stays_open(root: Beneath, library: Path) -> None:
    (library / "d").mkdir()
    (library / "d" / "x").write_bytes(b"x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    hash_files(root, [("d/x", *scanned(library / "d" / "x")), ("d/y", 1, 1), ("e/z", 1, 1), ("d", 1, 1)])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
