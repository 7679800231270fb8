"""Nothing outside of a library is opened, in both ways of opening."""

import ctypes
import errno
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.dedup import openat
from actors.dedup.confine import Beneath, EscapesLibrary, FileTrouble, SpecialFile, library_root
from actors.dedup.names import BadPath
from actors.dedup.relocate import move_beneath
from tests.support.unprivileged import unprivileged

OUTSIDE = b"what nobody may read"


@pytest.fixture(params=["openat2", "componentwise"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test here runs with the one call and with what replaces it."""
    if request.param == "openat2":
        if not openat.has_openat2():
            pytest.skip("this kernel has no openat2, or a filter forbids it")
    else:
        monkeypatch.setattr(openat, "has_openat2", lambda: False)
    name: str = request.param
    return name


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(OUTSIDE)
    inside = tmp_path / "libraries" / "photos"
    (inside / "2024" / "may").mkdir(parents=True)
    (inside / "2024" / "may" / "a.jpg").write_bytes(b"a picture")
    return inside


@pytest.fixture
def root(library: Path, way: str) -> Iterator[Beneath]:
    with library_root(library.parent, "photos") as opened:
        yield opened


def read(root: Beneath, path: str | bytes) -> bytes:
    fd = root.open_file(path)
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))  # noqa: PTH208  names are wanted


def test_a_file_is_read(root: Beneath, library: Path) -> None:
    (library / os.fsdecode(b"caf\xe9\n")).write_bytes(b"odd")
    (library / "~$x").write_bytes(b"temporary")
    assert read(root, "2024/may/a.jpg") == b"a picture"
    assert read(root, "caf\uf7e9\n") == b"odd"
    assert read(root, b"caf\xe9\n") == b"odd"
    assert read(root, "~$x") == b"temporary"
    with root.open_directory("2024") as year, year.open_directory("may") as month:
        assert read(month, "a.jpg") == b"a picture"


@pytest.mark.parametrize("target", ["out", "in", "dangling"])
def test_a_link_is_not_followed(root: Beneath, library: Path, target: str) -> None:
    """R000-100: a symlink that leaves the library is refused, and so is every other."""
    there = {"out": library.parent.parent / "outside", "in": Path("2024"), "dangling": Path("nothing")}[
        target
    ]
    (library / "link").symlink_to(there)
    (library / "2024" / "link").symlink_to(library.parent.parent / "outside" / "secret")
    for path in ("link", "link/secret", "link/may/a.jpg", "2024/link"):
        with pytest.raises(EscapesLibrary):
            root.open_file(path)
    for path in ("link", "link/may"):
        with pytest.raises(EscapesLibrary):
            root.open_directory(path)


def test_a_library_is_no_link_but_their_directory_may_be(library: Path, tmp_path: Path, way: str) -> None:
    """R000-100; the directory of the libraries is the operator's own choice."""
    (library.parent / "linked").symlink_to(tmp_path / "outside")
    with pytest.raises(EscapesLibrary):
        library_root(library.parent, "linked")
    (tmp_path / "chosen").symlink_to(library.parent)
    with library_root(tmp_path / "chosen", "photos") as root:
        assert read(root, "2024/may/a.jpg") == b"a picture"
    with library_root(tmp_path / "chosen", "photos/2024") as root:
        assert read(root, "may/a.jpg") == b"a picture"


@pytest.mark.parametrize(
    "path", ["", "..", "/", "/etc", "a/../../outside", "~", "$HOME", "photos/", "./photos"]
)
def test_a_library_lies_below(library: Path, path: str) -> None:
    """R000-99: absolute, `..`, `~` and `$` are refused."""
    with pytest.raises(BadPath):
        library_root(library.parent, path)


def test_a_library_that_is_not_there(library: Path, tmp_path: Path, way: str) -> None:
    for where, path, code in (
        (library.parent, "films", "NOT_FOUND"),
        (tmp_path / "nowhere", "photos", "NOT_FOUND"),
        (library.parent, "photos/2024/may/a.jpg", "NOT_A_DIRECTORY"),
    ):
        with pytest.raises(FileTrouble) as caught:
            library_root(where, path)
        assert caught.value.code == code


@pytest.mark.parametrize("path", ["..", "2024/../../../outside/secret", "/etc/passwd", b"..", b"2024/.."])
def test_climbing_is_refused(root: Beneath, path: str | bytes) -> None:
    with pytest.raises(EscapesLibrary):
        root.open_file(path)
    with pytest.raises(EscapesLibrary):
        root.open_directory(path)


@pytest.mark.parametrize(
    "path", ["", "2024//may", "./2024", "2024/", "a\0b", b"a\0b", b"", "\ud800", "\uf7c3\uf7a4"]
)
def test_what_names_nothing_is_refused(root: Beneath, path: str | bytes) -> None:
    with pytest.raises(BadPath) as caught:
        root.open_file(path)
    str(caught.value).encode()


def test_special_files_are_refused_without_waiting(root: Beneath, library: Path) -> None:
    os.mkfifo(library / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(library)  # the address of a socket is short
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
    before = descriptors()
    for path in ("pipe", "socket", "2024"):
        with pytest.raises(SpecialFile):
            root.open_file(path)
    assert descriptors() == before


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("2024/june", "NOT_FOUND"),
        ("2024/may/a.jpg/x", "NOT_A_DIRECTORY"),
        ("x" * 300, "NAME_TOO_LONG"),
        ("2024/" + "x" * 5000, "NAME_TOO_LONG"),
    ],
)
def test_reasons_are_short_codes(root: Beneath, path: str, code: str) -> None:
    before = descriptors()
    with pytest.raises(FileTrouble) as caught:
        root.open_file(path)
    assert caught.value.code == code
    assert descriptors() == before


def test_a_file_of_others_is_a_code(root: Beneath, library: Path) -> None:
    (library / "2024" / "may" / "a.jpg").chmod(0)
    with unprivileged(), pytest.raises(FileTrouble) as caught:
        root.open_file("2024/may/a.jpg")
    assert caught.value.code == "PERMISSION_DENIED"


def test_a_path_longer_than_the_kernel_takes(root: Beneath, library: Path) -> None:
    deep = ["d" * 200] * 60
    with root.make_directories("/".join(deep)) as bottom:
        os.close(os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=bottom.fd))
    before = descriptors()
    assert read(root, "/".join([*deep, "x"])) == b""
    with pytest.raises(FileTrouble):
        root.open_file("/".join([*deep, "y"]))
    assert descriptors() == before


def test_a_directory_swapped_for_a_link_never_leads_out(root: Beneath, library: Path, tmp_path: Path) -> None:
    """R000-100 as a race: somebody swaps a directory and a link to the outside as fast as he can."""
    (library / "real").mkdir()
    (library / "real" / "secret").write_bytes(b"inside")
    (library / "evil").symlink_to(tmp_path / "outside")
    done = threading.Event()

    def swap() -> None:
        at = Path(library)
        while not done.is_set():
            for old, new in (("real", "spare"), ("evil", "real"), ("real", "evil"), ("spare", "real")):
                os.rename(at / old, at / new)  # noqa: PTH104  the quickest way

    attacker = threading.Thread(target=swap)
    attacker.start()
    seen: dict[str, int] = {}
    try:
        for _ in range(200_000):
            try:
                fact = read(root, "real/secret").decode()
            except FileTrouble as error:
                fact = error.code
            seen[fact] = seen.get(fact, 0) + 1
            assert fact != OUTSIDE.decode(), "read what lies outside"
            if seen.get("inside", 0) > 50 and seen.get("ESCAPES_LIBRARY", 0) > 50:
                break
    finally:
        done.set()
        attacker.join()
    assert {"inside", "ESCAPES_LIBRARY"} <= set(seen), "the race was not met"


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_the_way_is_chosen_by_what_the_kernel_answers(
    monkeypatch: pytest.MonkeyPatch, library: Path, number: int
) -> None:
    """A filter that forbids the call (EPERM) and a kernel without it (ENOSYS) get the other way."""
    calls: list[bytes] = []

    def refuse(directory: int, path: bytes, flags: int) -> int:
        calls.append(path)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(openat, "openat2", refuse)
    openat.has_openat2.cache_clear()
    try:
        with library_root(library.parent, "photos") as root:
            assert read(root, "2024/may/a.jpg") == b"a picture"
        assert calls == [b"."], "asked once"
    finally:
        openat.has_openat2.cache_clear()


def test_an_overtaken_open_is_repeated(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    answers = [errno.EAGAIN, errno.EINTR, errno.EAGAIN]
    real = openat._openat2

    def flaky(*arguments: object) -> int:
        if answers:
            ctypes.set_errno(answers.pop())
            return -1
        fd: int = real(*arguments)
        return fd

    if not openat.has_openat2():
        pytest.skip("this kernel has no openat2, or a filter forbids it")
    monkeypatch.setattr(openat, "_openat2", flaky)
    with library_root(library.parent, "photos") as root:
        assert read(root, "2024/may/a.jpg") == b"a picture"
    assert not answers


def identity(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_dev, facts.st_ino


def test_a_file_is_moved_into_directories_made_for_it(root: Beneath, library: Path) -> None:
    meant = identity(library / "2024/may/a.jpg")
    move_beneath(root, "2024/may/a.jpg", root, ".tenure-trash/7/2024/may/a.jpg", expected=meant)
    assert (library / ".tenure-trash/7/2024/may/a.jpg").read_bytes() == b"a picture"
    assert not (library / "2024/may/a.jpg").exists()
    assert (library / ".tenure-trash").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("flag_known", [True, False])
def test_a_move_replaces_nothing(
    root: Beneath, library: Path, flag_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not flag_known:  # as a file system that knows no RENAME_NOREPLACE
        monkeypatch.setattr(openat, "SYS_RENAMEAT2", None)
    (library / "taken").write_bytes(b"mine")
    with pytest.raises(FileTrouble) as caught:
        move_beneath(root, "2024/may/a.jpg", root, "taken")
    assert caught.value.code == "ALREADY_EXISTS"
    assert (library / "taken").read_bytes() == b"mine"
    assert (library / "2024/may/a.jpg").read_bytes() == b"a picture"
    move_beneath(root, "2024/may/a.jpg", root, "free")
    assert (library / "free").read_bytes() == b"a picture"


def test_a_move_without_a_source_leaves_no_trace(
    root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openat, "SYS_RENAMEAT2", None)
    with pytest.raises(FileTrouble) as caught:
        move_beneath(root, "2024/gone", root, "trash/x")
    assert caught.value.code == "NOT_FOUND"
    assert not (library / "trash").exists()


def test_another_file_under_the_name_stays(
    root: Beneath, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that was looked into is moved, or none: also when it is swapped at the last moment."""
    meant = identity(library / "2024/may/a.jpg")
    (library / "other").write_bytes(b"another")
    real = openat.rename_noreplace

    def swapped(source: int, name: bytes, target: int, new_name: bytes) -> None:
        (library / "other").replace(library / "2024/may/a.jpg")
        monkeypatch.setattr("actors.dedup.relocate.rename_noreplace", real)
        real(source, name, target, new_name)

    monkeypatch.setattr("actors.dedup.relocate.rename_noreplace", swapped)
    for _ in range(2):  # swapped in between, then from the start
        with pytest.raises(FileTrouble) as caught:
            move_beneath(root, "2024/may/a.jpg", root, "trash/x", expected=meant)
        assert caught.value.code == "CHANGED"
        assert (library / "2024/may/a.jpg").read_bytes() == b"another"
        assert not (library / "trash/x").exists()


def test_a_directory_or_a_link_is_not_moved(root: Beneath, library: Path, tmp_path: Path) -> None:
    (library / "link").symlink_to(tmp_path / "outside" / "secret")
    for path in ("2024", "link"):
        with pytest.raises(SpecialFile):
            move_beneath(root, path, root, "trash/x")
    (library / "trash").symlink_to(tmp_path / "outside")
    with pytest.raises(EscapesLibrary):
        move_beneath(root, "2024/may/a.jpg", root, "trash/x")
    assert {path.name for path in (tmp_path / "outside").iterdir()} == {"secret"}
