"""Directories of a run: in memory where there is room, locked while in use, cleared when a run was killed."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

PREFIX: Final = "tenure-chaos-"
ROOM_BYTES: Final = 2_000_000_000


def ground() -> Path:
    """Where there is room for data directories."""
    places = [Path("/dev/shm"), Path(tempfile.gettempdir())]  # noqa: S108  mkdtemp makes the names
    return next((p for p in places if p.is_dir() and shutil.disk_usage(p).free > ROOM_BYTES), places[-1])


class Place:
    """A directory of one world's own; `close` removes it with whatever is mounted in it."""

    def __init__(self) -> None:
        clear_leftovers()
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}world-", dir=ground()))
        self.path.chmod(0o711)
        self._lock = _lock(self.path)

    def close(self) -> None:
        _remove(self.path)
        os.close(self._lock)


def clear_leftovers() -> None:
    for path in ground().glob(f"{PREFIX}world-*"):
        try:
            if path.stat().st_uid == os.geteuid():
                lock = _lock(path)
                _remove(path)
                os.close(lock)
        except (BlockingIOError, FileNotFoundError):
            continue


def mount_tmpfs(path: Path, size_bytes: int) -> None:
    path.mkdir(exist_ok=True)
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", path], check=True)


def _remove(path: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in mounts:
        if mount.startswith(f"{path}/"):
            subprocess.run(["/bin/umount", "-l", mount], check=False)
    shutil.rmtree(path, ignore_errors=True)


def _lock(path: Path) -> int:
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise
    return lock
