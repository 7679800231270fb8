"""Directories of a run: in memory where there is room, locked while in use, cleared when a run was killed."""

import errno
import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.chaos import strays

PREFIX: Final = "tenure-chaos-"
ROOM_BYTES: Final = 2_000_000_000


PLACES: Final = (Path("/dev/shm"), Path(tempfile.gettempdir()))  # noqa: S108  mkdtemp makes the names


def ground() -> Path:
    """Where there is room for data directories."""
    return next((p for p in PLACES if p.is_dir() and shutil.disk_usage(p).free > ROOM_BYTES), PLACES[-1])


class Place:
    """A directory of one world's own; `close` removes it with whatever is mounted in it or runs for it."""

    def __init__(self) -> None:
        clear_leftovers()
        self.path, self._lock = _make()

    def close(self) -> None:
        _remove(self.path)
        os.close(self._lock)


def clear_leftovers() -> None:
    """What has no lock has no owner: the kernel takes it from whoever dies."""
    for path in (path for place in PLACES for path in place.glob(f"{PREFIX}world-*")):
        try:
            if path.stat().st_uid != os.geteuid():
                continue
            lock = _lock(path)
        except (BlockingIOError, FileNotFoundError):
            continue
        _remove(path)
        os.close(lock)


def mount_tmpfs(path: Path, size_bytes: int) -> None:
    path.mkdir(exist_ok=True)
    command = ["/bin/mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)]
    subprocess.run(command, check=True, start_new_session=True)


def fill(path: Path) -> None:
    """A file that takes all the room there is. Unbuffered: the close would write a buffer once more."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def _make() -> tuple[Path, int]:
    """Another run may take a directory for left behind before it is locked; then there is the next."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}world-", dir=ground()))
        try:
            path.chmod(0o711)
            lock = _lock(path)
        except (BlockingIOError, FileNotFoundError):
            continue
        if path.exists():
            return path, lock
        os.close(lock)


def _remove(path: Path) -> None:
    strays.end(strays.of_world(path))
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in mounts:
        if mount.startswith(f"{path}/"):
            subprocess.run(["/bin/umount", "-l", mount], check=False, start_new_session=True)
    shutil.rmtree(path, ignore_errors=True)


def _lock(path: Path) -> int:
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise
    return lock
