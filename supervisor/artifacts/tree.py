"""A directory tree that is never left: files by their names, walked one directory at a time. Blocking.

Every name is opened relative to the open directory before it, with O_NOFOLLOW: a symbolic link anywhere on
the way is refused, also one that is put there between two steps. The root itself is the operator's choice and
may be a link. How new content gets here is told in `draft`.
"""

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from supervisor import umask
from supervisor.artifacts import Entry
from supervisor.artifacts.errors import (
    AccessDenied,
    ArtifactMissing,
    InvalidKey,
    NoSpace,
    QuotaExceeded,
    StoreFailed,
)
from supervisor.artifacts.flusher import Flusher
from supervisor.artifacts.key import IDENTITY, TEMPORARY

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a pipe that somebody put there must not hold us
FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
PIECE: Final = 256 * 1024
TMP: Final = "tmp"
REMEMBERED: Final = 10_000

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Modes:
    directory: int
    file: int


SHARED: Final = Modes(0o750, 0o640)
"""The group may read: a backup, a second server. The operator's umask can take that away."""
PRIVATE: Final = Modes(0o700, 0o600)


class Tree:
    """Without `make_root` the root must be there: it is a mount point, and without its mount it is not it."""

    def __init__(self, root: Path, *, make_root: bool = True, private: bool = False) -> None:
        self.root = root
        modes, denied = PRIVATE if private else SHARED, umask.started_with()
        self.modes = Modes(modes.directory & ~denied, modes.file & ~denied)
        self._mode_above = self.modes.directory if private else 0o777 & ~denied
        self._made = not make_root
        self._durable: set[Names] = set()
        self._flusher = Flusher()

    def path(self, names: Names) -> Path:
        """For messages only; nothing is ever opened by it."""
        return self.root.joinpath(*names)

    @contextmanager
    def directory(self, names: Names, *, make: bool = False) -> Iterator[int]:
        """An open directory. Made ones, and those found on the way to a new file, are on the disk."""
        if make:
            self._make_root()
        inside = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for depth in range(1, len(names) + 1):
                deeper = self._enter(inside, names[:depth], make=make)
                os.close(inside)
                inside = deeper
            yield inside
        finally:
            os.close(inside)

    def _make_root(self) -> None:
        if self._made:
            return
        new = [directory for directory in (self.root, *self.root.parents) if not directory.exists()]
        self.root.mkdir(mode=self.modes.directory, parents=True, exist_ok=True)
        for directory in new:
            with suppress(OSError):  # a share may have modes of its own
                directory.chmod(self.modes.directory if directory == self.root else self._mode_above)
        for parent in {self.root.parent, *(directory.parent for directory in new)}:
            # one that we may not read is not ours, and was there before
            with suppress(PermissionError):
                _flush(parent)
        self._made = True

    def _enter(self, inside: int, names: Names, *, make: bool) -> int:
        name = names[-1]
        is_new = make and self._make(inside, names)
        try:
            found = os.open(name, DIRECTORY, dir_fd=inside)
            if is_new:
                grant(found, self.modes.directory)
            return found
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            if make or stat.S_ISLNK(os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode):
                raise InvalidKey(
                    key="/".join(names), what="is a symbolic link or a file, not a directory"
                ) from None
            raise FileNotFoundError(errno.ENOENT, "a file is in the way", name) from None

    def _make(self, inside: int, names: Names) -> bool:
        """Whether it is new."""
        is_new = True
        try:
            os.mkdir(names[-1], self.modes.directory, dir_fd=inside)
        except FileExistsError:
            is_new = False
            # who made it may have died before it was on the disk; once is enough to be sure
            if names in self._durable:
                return False
        flush(inside)
        if len(self._durable) >= REMEMBERED:
            self._durable.clear()
        self._durable.add(names)
        return is_new

    def flush(self, directory: int) -> None:
        """Its names are on the disk. Many writers into one directory share the work."""
        facts = os.fstat(directory)
        self._flusher.flush((facts.st_dev, facts.st_ino), partial(flush, directory))

    def open(self, names: Names) -> int:
        """An artifact, open for reading."""
        with self.faults(names), self.directory(names[:-1]) as inside:
            return open_file(inside, names)

    @contextmanager
    def file(self, names: Names) -> Iterator[int]:
        number = self.open(names)
        try:
            with self.faults(names):
                yield number
        finally:
            os.close(number)

    def read(self, number: int, names: Names, start: int, length: int) -> bytes:
        with self.faults(names):
            return os.pread(number, length, start)

    def entry(self, names: Names) -> Entry:
        with self.file(names) as number:
            return _entry("/".join(names), os.fstat(number))

    def digest(self, names: Names) -> tuple[int, str]:
        with self.file(names) as number:
            return digest(number)

    def take_away(self, names: Names, target: Names | None, before: float | None) -> bool:
        """Remove it, or move it and make it young; `before` is compared under its lock."""
        try:
            with self.faults(names), self.directory(names[:-1]) as inside:
                number = open_file(inside, names, locked=before is not None)
                try:
                    if before is not None and not _forgotten(inside, names[-1], number, before):
                        return False
                    if target is None:
                        os.unlink(names[-1], dir_fd=inside)
                    else:
                        os.utime(number)
                        with self.directory(target[:-1], make=True) as there:
                            os.rename(names[-1], target[-1], src_dir_fd=inside, dst_dir_fd=there)
                            flush(there)
                    flush(inside)
                finally:
                    os.close(number)
        except (ArtifactMissing, BlockingIOError):
            return False
        return True

    def walk(self, names: Names = ()) -> Generator[Entry, None, None]:
        """Every artifact below; what is no plain file or directory is passed by."""
        try:
            with self.faults(names), self.directory(names) as inside:
                yield from _below(inside, "".join(f"{name}/" for name in names))
        except ArtifactMissing:
            return

    def sweep(self, before: float) -> int:
        """Remove plain files of tmp/ that were last written before that instant of the file system."""
        removed = 0
        try:
            with self.faults((TMP,)), self.directory((TMP,)) as inside:
                for name in _names(inside):
                    facts = os.stat(name, dir_fd=inside, follow_symlinks=False)
                    if stat.S_ISREG(facts.st_mode) and facts.st_mtime < before:
                        os.unlink(name, dir_fd=inside)
                        removed += 1
        except ArtifactMissing:
            return 0
        return removed

    @contextmanager
    def faults(self, names: Names) -> Iterator[None]:
        """What the system says, in this product's words."""
        try:
            yield
        except FileNotFoundError:
            raise ArtifactMissing(key="/".join(names), place=self.root) from None
        except BlockingIOError:
            raise
        except OSError as error:
            key, path = "/".join(names), self.path(names)
            what = error.strerror or str(error)
            if error.errno == errno.ENOSPC:
                raise NoSpace(key=key, place=self.root) from error
            if error.errno == errno.EDQUOT:
                raise QuotaExceeded(key=key, what=f"{what} in {self.root}") from error
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise AccessDenied(path=path, what=what) from error
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise InvalidKey(key=key, what="is not a plain file") from error
            raise StoreFailed(path=path, what=what) from error


def grant(handle: int, mode: int) -> None:
    """Give the group what our own umask took. Where a share has modes of its own, those hold."""
    with suppress(OSError):
        os.fchmod(handle, mode)


def open_file(inside: int, names: Names, *, locked: bool = False) -> int:
    """A plain file of that directory, or InvalidKey; BlockingIOError: somebody has its lock."""
    # a share of NFS gives the exclusive lock to who may write only
    number = os.open(names[-1], FILE | (os.O_RDWR if locked else 0), dir_fd=inside)
    try:
        require_plain(number, names)
        if locked:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(number)
        raise
    return number


def require_plain(number: int, names: Names) -> None:
    if not stat.S_ISREG(os.fstat(number).st_mode):
        raise InvalidKey(key="/".join(names), what="is not a plain file")


def is_named(inside: int, name: str, number: int) -> bool:
    """Is the open file the one that has that name?"""
    try:
        facts = os.stat(name, dir_fd=inside, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(facts, os.fstat(number))


def flush(directory: int) -> None:
    try:
        os.fsync(directory)
    except OSError as error:
        # a share whose client cannot: there, names are made by the server, before it answers
        if error.errno != errno.EINVAL:
            raise


def _forgotten(inside: int, name: str, number: int, before: float) -> bool:
    return is_named(inside, name, number) and os.fstat(number).st_mtime < before


def digest(number: int) -> tuple[int, str]:
    found = hashlib.sha256()
    size = 0
    while piece := os.pread(number, PIECE, size):
        found.update(piece)
        size += len(piece)
    return size, found.hexdigest()


def _entry(key: str, facts: os.stat_result) -> Entry:
    return Entry(key, facts.st_size, datetime.fromtimestamp(facts.st_mtime, UTC))


def _flush(directory: Path) -> None:
    number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flush(number)
    finally:
        os.close(number)


def _names(inside: int) -> list[str]:
    return os.listdir(inside)


def _below(inside: int, prefix: str) -> Generator[Entry, None, None]:
    for name in sorted(_names(inside)):
        if (not prefix and name == IDENTITY) or TEMPORARY.search(name):
            continue
        # what goes away while we look is not there
        with suppress(FileNotFoundError):
            facts = os.stat(name, dir_fd=inside, follow_symlinks=False)
            if stat.S_ISREG(facts.st_mode):
                yield _entry(prefix + name, facts)
            elif stat.S_ISDIR(facts.st_mode):
                deeper = os.open(name, DIRECTORY, dir_fd=inside)
                try:
                    yield from _below(deeper, f"{prefix}{name}/")
                finally:
                    os.close(deeper)
