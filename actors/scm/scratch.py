"""A directory for the length of one sync: diffs on their way, configuration of programs."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread

__all__ = ["scratch_under"]


@asynccontextmanager
async def scratch_under(above: Path) -> AsyncIterator[Path]:
    """A directory of this sync's own. Its lock says that the owner lives: what a killed one left goes now."""
    with anyio.CancelScope(shield=True):
        place, lock = await to_thread.run_sync(_made, above)
    try:
        await to_thread.run_sync(_sweep, above)
        yield place
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(_remove, place, lock)


def _made(above: Path) -> tuple[Path, int]:
    above.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        place = Path(tempfile.mkdtemp(prefix="scratch-", dir=above))
        if (lock := _locked(place)) is not None:
            if place.exists():
                return place, lock
            os.close(lock)  # a sweep came between


def _sweep(above: Path) -> None:
    for place in above.glob("scratch-*"):
        if (lock := _locked(place)) is not None:
            _remove(place, lock)


def _locked(place: Path) -> int | None:
    try:
        lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _remove(place: Path, lock: int) -> None:
    shutil.rmtree(place, ignore_errors=True)
    os.close(lock)
