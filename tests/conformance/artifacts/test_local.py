"""The local backend against its file system: links, pipes, rights, full disks, and crashes at every step."""

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.scm.facts import git_key, svn_key
from supervisor.artifacts import (
    AccessDenied,
    ArtifactExists,
    ArtifactMissing,
    ChecksumMismatch,
    Elsewhere,
    InvalidKey,
    NoSpace,
    Overwrite,
    QuotaExceeded,
    StoreFailed,
)
from supervisor.artifacts.local import LocalArtifacts
from tests.support.slowness import patient

KEY = "scm/1/svn/r100.diff"


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


@pytest.fixture
def artifacts(root: Path) -> LocalArtifacts:
    return LocalArtifacts(root)


async def test_layout_and_rights(artifacts: LocalArtifacts, root: Path) -> None:
    """R001-070..073, R001-108, R001-113: directories come by themselves, 0750 and 0640"""
    layout = {
        svn_key(1, 100): "scm/1/svn/r100.diff",
        git_key(1, "a" * 40): f"scm/1/git/commits/{'a' * 40}.diff",
        "attachments/7/1.log": "attachments/7/1.log",
        "exports/7.csv": "exports/7.csv",
    }
    for key, place in layout.items():
        await artifacts.put(key, key.encode())
        assert (root / place).read_bytes() == key.encode()
    for directory in (root, root / "scm", root / "scm/1", root / "attachments", root / "tmp"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o750
    assert stat.S_IMODE((root / KEY).stat().st_mode) == 0o640
    assert (root / KEY).stat().st_nlink == 1
    assert list((root / "tmp").iterdir()) == []


async def test_temporary_files_are_named_after_their_target(
    artifacts: LocalArtifacts, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-113: <name>.tmp.<uuid>"""
    seen: list[str] = []
    real = os.link

    def link(source: str, *arguments: Any, **options: Any) -> None:
        seen.append(source)
        real(source, *arguments, **options)

    monkeypatch.setattr(os, "link", link)
    await artifacts.put(KEY, b"x")
    assert seen[-1].startswith("r100.diff.tmp.")
    with pytest.raises(InvalidKey):
        await artifacts.get("tmp/" + seen[-1])


@pytest.mark.parametrize("place", ["scm", "scm/1", KEY])
async def test_symbolic_links_are_not_followed(
    artifacts: LocalArtifacts, root: Path, tmp_path: Path, place: str
) -> None:
    """R001-076, S9: neither in a directory of the path nor at its end, for any call"""
    outside = tmp_path / "outside"
    (outside / "1/svn").mkdir(parents=True)
    (outside / "svn").mkdir()
    secrets = [outside / "1/svn/r100.diff", outside / "svn/r100.diff", outside / "r100.diff"]
    for secret in secrets:
        secret.write_bytes(b"secret")
    link = root / place
    link.parent.mkdir(parents=True)
    link.symlink_to(secrets[2] if place == KEY else outside)
    for call in (
        artifacts.get(KEY),
        artifacts.stat(KEY),
        artifacts.verify(KEY),
        artifacts.delete(KEY),
        artifacts.put(KEY, b"x", overwrite=Overwrite.SAME),
    ):
        with pytest.raises(InvalidKey):
            await call
    if place != KEY:
        with pytest.raises(InvalidKey):
            await artifacts.put(KEY, b"x", overwrite=Overwrite.REPLACE)
    assert [secret.read_bytes() for secret in secrets] == [b"secret"] * 3
    assert [entry.key async for entry in artifacts.entries()] == []
    assert sorted(path.name for path in outside.rglob("*") if path.is_file()) == ["r100.diff"] * 3


async def test_a_link_that_is_replaced_is_itself_replaced(artifacts: LocalArtifacts, root: Path) -> None:
    """R001-076: writing over a link at the end of the path leaves what it pointed to alone"""
    victim = root.parent / "victim"
    victim.write_bytes(b"mine")
    (root / "scm/1/svn").mkdir(parents=True)
    (root / KEY).symlink_to(victim)
    await artifacts.put(KEY, b"x", overwrite=Overwrite.REPLACE)
    assert victim.read_bytes() == b"mine"
    assert not (root / KEY).is_symlink()


async def test_a_tmp_that_is_a_link_is_not_used(
    artifacts: LocalArtifacts, root: Path, tmp_path: Path
) -> None:
    root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (root / "tmp").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidKey):
        await artifacts.put(KEY, b"x")
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "volume")
    await LocalArtifacts(tmp_path / "link").put("a", b"x")
    assert (tmp_path / "volume/a").read_bytes() == b"x"


async def test_pipes_devices_and_directories_are_no_artifacts(artifacts: LocalArtifacts, root: Path) -> None:
    root.mkdir()
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for key in ("pipe", "folder"):
        for call in (artifacts.get(key), artifacts.stat(key), artifacts.delete(key)):
            with anyio.fail_after(patient(5)), pytest.raises(InvalidKey):
                await call
    with pytest.raises(InvalidKey):
        await artifacts.put("folder", b"x", overwrite=Overwrite.REPLACE)
    assert [entry.key async for entry in artifacts.entries()] == []


async def test_a_file_is_no_folder(artifacts: LocalArtifacts) -> None:
    await artifacts.put("a", b"x")
    assert not await artifacts.exists("a/b")
    with pytest.raises(InvalidKey, match="not a directory"):
        await artifacts.put("a/b", b"x")


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, NoSpace),
        (errno.EDQUOT, QuotaExceeded),
        (errno.EACCES, AccessDenied),
        (errno.EROFS, AccessDenied),
        (errno.EIO, StoreFailed),
    ],
)
@pytest.mark.parametrize("step", ["write", "fsync", "link", "open"])
async def test_what_the_system_refuses_is_said_and_leaves_nothing(
    artifacts: LocalArtifacts,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    expected: type[Exception],
    step: str,
) -> None:
    """R001-085, R001-116, R001-119: a clear error with the path, and no partial object"""
    await artifacts.put("first", b"x")
    real = getattr(os, step)

    def refuse(target: Any, *arguments: Any, **options: Any) -> Any:
        if step == "open" and not (arguments and arguments[0] & os.O_CREAT):
            return real(target, *arguments, **options)
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, step, refuse)
        with pytest.raises(expected) as caught:
            await artifacts.put("second", b"y" * 1000)
    assert str(root) in str(caught.value)
    assert [entry.key async for entry in artifacts.entries()] == ["first"]
    assert list((root / "tmp").iterdir()) == []


async def test_a_disk_that_keeps_other_bytes_is_caught(
    artifacts: LocalArtifacts, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-084: partial and wrong writes are seen by size and SHA-256 before anything is published"""
    real = os.write

    def flip(number: int, piece: Any) -> int:
        return real(number, b"?" * len(piece))

    def lose(number: int, piece: Any) -> int:
        real(number, bytes(piece)[:-1])
        return len(piece)

    await artifacts.put("first", b"x")
    for broken in (flip, lose):
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", broken)
            with pytest.raises(ChecksumMismatch):
                await artifacts.put(KEY, b"y" * 1000)
        with pytest.raises(ArtifactMissing):
            await artifacts.get(KEY)


async def test_a_short_write_is_completed(artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda number, piece: real(number, bytes(piece)[:3]))
    await artifacts.put(KEY, b"0123456789")
    assert await artifacts.get(KEY) == b"0123456789"


@pytest.mark.parametrize("overwrite", Overwrite)
async def test_bytes_names_and_directories_reach_the_disk_in_order(
    root: Path, monkeypatch: pytest.MonkeyPatch, overwrite: Overwrite
) -> None:
    """R16, DESIGN 14: the file before its name, its name before the answer, and every directory on the way"""
    await LocalArtifacts(root).put("other", b"x")
    (root / "scm").mkdir()
    told: list[tuple[str, str]] = []
    real = {name: getattr(os, name) for name in ("fsync", "link", "rename")}

    def fsync(number: int) -> None:
        told.append(("fsync", str(Path(f"/proc/self/fd/{number}").readlink()).removeprefix(str(root))))
        real["fsync"](number)

    def naming(step: str) -> Callable[..., None]:
        def named(source: str, target: str, **options: Any) -> None:
            told.append(("name", target))
            real[step](source, target, **options)

        return named

    monkeypatch.setattr(os, "fsync", fsync)
    for step in ("link", "rename"):
        monkeypatch.setattr(os, step, naming(step))
    await LocalArtifacts(root).put(KEY, b"x", overwrite=overwrite)
    named = told.index(("name", "r100.diff"))
    before, after = told[:named], told[named + 1 :]
    assert any(what == "fsync" and "r100.diff.tmp." in path for what, path in before)
    # also of a directory that was there: who made it may have died before it was on the disk
    assert {("fsync", ""), ("fsync", "/scm"), ("fsync", "/scm/1")} <= set(before)
    assert after == [("fsync", "/scm/1/svn")]


async def test_what_is_being_put_is_not_taken_away(artifacts: LocalArtifacts, root: Path) -> None:
    """The race of a collector, closed by the lock of the file: who puts has it, and so the other passes by"""
    await artifacts.put(KEY, b"x")
    os.utime(root / KEY, (0, 0))
    before = await artifacts.now()
    with (root / KEY).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert not await artifacts.delete(KEY, before=before)
    assert await artifacts.delete(KEY, before=before)


@pytest.mark.parametrize("overwrite", [Overwrite.SAME, Overwrite.REPLACE])
async def test_what_is_put_while_it_is_taken_away_is_there(
    artifacts: LocalArtifacts, root: Path, monkeypatch: pytest.MonkeyPatch, overwrite: Overwrite
) -> None:
    """The collector has found it old, and a put comes before it is removed: in the end, it is there"""
    await artifacts.put(KEY, b"x")
    os.utime(root / KEY, (0, 0))
    real = os.unlink
    writers: list[threading.Thread] = []

    def put() -> None:
        anyio.run(partial(LocalArtifacts(root).put, KEY, b"x", overwrite=overwrite))

    def unlink(name: str, **options: Any) -> None:
        if name == "r100.diff" and not writers:
            writers.append(threading.Thread(target=put))
            writers[0].start()
            # it cannot end before this one lets go; without the lock it would
            writers[0].join(1)
        real(name, **options)

    monkeypatch.setattr(os, "unlink", unlink)
    assert await artifacts.delete(KEY, before=await artifacts.now())
    await anyio.to_thread.run_sync(writers[0].join)
    assert await artifacts.get(KEY) == b"x"


UNPRIVILEGED = """
import os, sys
from pathlib import Path
import anyio
from supervisor.artifacts import AccessDenied
from supervisor.artifacts.local import LocalArtifacts

async def main():
    if os.getuid() == 0:
        os.setresuid(65534, 65534, 65534)
    store = LocalArtifacts(Path(sys.argv[1]))
    for call in (store.put("a/b", b"x"), store.get("kept")):
        try:
            await call
        except AccessDenied as error:
            print(error)

anyio.run(main)
"""


async def test_missing_rights_are_named() -> None:
    """R001-085: with the path, never swallowed"""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        root = Path(place) / "closed"
        await LocalArtifacts(root).put("kept", b"x")
        root.parent.chmod(0o755)
        for path in (root / "kept", root / "tmp", root / ".store"):
            path.chmod(0o000)
        root.chmod(0o555)
        told = subprocess.run(
            [sys.executable, "-c", UNPRIVILEGED, str(root)],
            capture_output=True, text=True, check=True, timeout=patient(30),
        )  # fmt: skip
        root.chmod(0o755)
        (root / "tmp").chmod(0o755)
    shown = [line for line in told.stdout.splitlines() if line.startswith(f"PERMISSION_DENIED: {root}")]
    assert len(shown) == 2, told


STEPS = ["mkdir", "open", "write", "fsync", "link", "rename", "unlink", "close"]


async def test_a_crash_at_any_step_shows_all_or_nothing(tmp_path: Path) -> None:
    """R16, H37: the process ends before or after each system call of a put: all is as before, or done"""
    outcomes = set[str]()
    for overwrite in Overwrite:
        for when in ("before", "after"):
            n = 0
            while True:
                n += 1
                root = tmp_path / f"{overwrite.value}-{when}-{n}"
                store = LocalArtifacts(root)
                await store.put("kept", b"kept")
                if overwrite is Overwrite.REPLACE:
                    await store.put(KEY, b"old")
                if not await crash_at(store, n, when, overwrite):
                    break
                outcomes.add(await survey(root, overwrite))
                # and the next one does it all
                again = LocalArtifacts(root)
                try:
                    await again.put(KEY, b"new", overwrite=overwrite)
                except ArtifactExists:
                    assert overwrite is Overwrite.REFUSE
                assert await again.get(KEY) == b"new"
                await again.sweep(older_than_days=-1)
                assert list((root / "tmp").iterdir()) == []
            assert n > 10
    assert outcomes == {"nothing", "old", "new"}


async def crash_at(store: LocalArtifacts, n: int, when: str, overwrite: Overwrite) -> bool:
    """Put, and crash at the n-th system call; False = there were fewer."""
    calls = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > n or (calls == n and when == "before"):
                raise Crash
            answer = real(*arguments, **options)
            if calls == n:
                raise Crash
            return answer

        return call

    with pytest.MonkeyPatch.context() as patched:
        for step in STEPS:
            patched.setattr(os, step, counted(getattr(os, step)))
        try:
            await store.put(KEY, b"new", overwrite=overwrite)
        except Crash:
            return True
        return False


async def survey(root: Path, overwrite: Overwrite) -> str:
    store = LocalArtifacts(root)
    found = {entry.key for entry in [entry async for entry in store.entries()]}
    assert await store.get("kept") == b"kept"
    if KEY not in found:
        assert found == {"kept"}
        assert overwrite is not Overwrite.REPLACE, "what was there is gone"
        return "nothing"
    content = await store.get(KEY)
    assert content in (b"old", b"new")
    return content.decode()


WRITER = """
import sys, anyio
from pathlib import Path
from supervisor.artifacts import Overwrite
from supervisor.artifacts.local import LocalArtifacts

async def main():
    store = LocalArtifacts(Path(sys.argv[1]))
    n = 0
    while True:
        n += 1
        await store.put(f"many/{n % 7}", str(n % 10).encode() * 300_000, overwrite=Overwrite.REPLACE)
        print(n, flush=True)

anyio.run(main)
"""


@pytest.mark.slow
async def test_killed_writers_leave_whole_artifacts_only(tmp_path: Path) -> None:
    store = LocalArtifacts(tmp_path)
    for delay in (0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        try:
            assert writer.stdout is not None
            await anyio.to_thread.run_sync(writer.stdout.readline)
            await anyio.sleep(delay)
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        async for entry in store.entries():
            content = await store.get(entry.key)
            assert len(content) == 300_000
            assert len(set(content)) == 1
    await store.sweep(older_than_days=-1)
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_sweep_keeps_what_is_young(artifacts: LocalArtifacts, root: Path) -> None:
    """R001-077: temporary files are cleaned after 30 days"""
    await artifacts.put("tmp/parked", b"x")
    await artifacts.put("kept", b"x")
    young, old = (root / f"tmp/r1.diff.tmp.{digit * 32}" for digit in "ab")
    for path, days in ((young, 29), (old, 31), (root / "kept", 99)):
        path.write_bytes(b"x")
        os.utime(path, (time.time() - days * 86400,) * 2)
    assert await artifacts.sweep() == 1
    assert young.exists()
    assert not old.exists()
    assert {entry.key async for entry in artifacts.entries()} == {"tmp/parked", "kept"}


async def test_a_store_is_known_by_its_own_name(tmp_path: Path) -> None:
    """The host may change under a volume; another directory of the same host is another store."""
    uri = (await LocalArtifacts(tmp_path / "a", host="pod-1").put("k/1", b"x")).uri
    assert "@pod-1/k/1" in uri
    moved = LocalArtifacts(tmp_path / "a", host="pod-2")
    assert await moved.key_of(uri) == "k/1"
    with pytest.raises(Elsewhere, match="pod-3"):
        await LocalArtifacts(tmp_path / "b", host="pod-3").key_of(uri)
    assert not (tmp_path / "b").exists()


async def test_many_give_a_store_its_name_at_once(tmp_path: Path) -> None:
    stores = [LocalArtifacts(tmp_path / "a") for _ in range(8)]
    assert await stores[0].place() is None
    assert not (tmp_path / "a").exists()
    places = set[str]()

    async def ask(store: LocalArtifacts) -> None:
        places.add((await store.uri("a")).partition("@")[0])

    async with anyio.create_task_group() as group:
        for store in stores:
            group.start_soon(ask, store)
    assert len(places) == 1
