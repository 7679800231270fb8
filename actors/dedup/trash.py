"""One duplicate on its way to the trash of its library, in a thread: looked into, moved, looked after.

    <library>/a/b.jpg  ->  <library>/.tenure-trash/<job>/a/b.jpg

Nothing is deleted, nothing is replaced and the file that stays is never touched. A file is moved only if it
is still the one whose content was compared; after the move the file that stays is looked at once more, and if
it is not there any more the duplicate goes back to its place. That also holds where two paths lead to one
file (a directory mounted twice) and where another job removes the file that stays at the same moment: of
two moves at least one sees the other.

NOT guaranteed: that a file which is written to in the instant of its move stays. It is found changed and put
back.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self
from uuid import UUID

from actors.dedup.confine import Beneath, FileTrouble, library_root, split
from actors.dedup.digest import Digest, Failure, hash_file
from actors.dedup.hashing import Algorithm
from actors.dedup.listing import TRASH, signed
from actors.dedup.names import BadPath
from actors.dedup.relocate import move_beneath
from supervisor.store import Record

Stop = Callable[[], bool]
UNSIGNED = (1 << 64) - 1
CHANGED = frozenset({"CHANGED", "CHANGED_SINCE_SCAN", "CHANGING"})


class Moved(NamedTuple):
    """Whether the file lies in the trash now, and what was wrong."""

    away: bool
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """A file of the group, as the plan has it."""

    id: int
    root_path: str
    path: str
    facts: tuple[int, int]  # size, mtime_ns
    trash_path: str
    allowed: bool  # this job has leave to move it already
    gone: bool

    @classmethod
    def of_row(cls, job: UUID, row: Record) -> Self:
        return cls(
            id=row["id"],
            root_path=row["root_path"],
            path=row["relative_path"],
            facts=(row["size_bytes"], row["mtime_ns"]),
            trash_path=row["trash_path"] or f"{TRASH}/{job}/{row['relative_path']}",
            allowed=row["trash_path"] is not None,
            gone=row["gone"],
        )


@dataclass(frozen=True, slots=True)
class Trash:
    """What all copies of one group have in common."""

    libraries_dir: Path
    algorithm: Algorithm
    content_hash: bytes

    def look_into(self, copy: Copy, should_stop: Stop, *, as_scanned: bool) -> Digest | Failure:
        """Its whole content, read now and equal to that of the group; as a Digest, what it was then."""
        return self._read(copy.root_path, copy.path, copy.facts if as_scanned else None, should_stop)

    def is_there(self, copy: Copy, should_stop: Stop) -> bool:
        """Whether a move that was begun has happened; it is made to last then."""
        if isinstance(self._read(copy.root_path, copy.trash_path, None, should_stop), Failure):
            return False
        with self._root(copy) as root:
            _sync(root, copy)
        return True

    def move(self, copy: Copy, seen: Digest, keeper: Copy, kept: Digest, should_stop: Stop) -> Moved:
        """Both digests are those of just now."""
        try:
            with self._root(copy) as root:
                if should_stop():
                    return Moved(False, "STOPPED")
                facts = move_beneath(root, copy.path, root, copy.trash_path, expected=_identity(seen))
                if (facts.st_size, facts.st_mtime_ns) != (seen.size, seen.mtime_ns):
                    return _back(root, copy, seen, "FILE_CHANGED")
                if not self._stands(keeper, kept):
                    return _back(root, copy, seen, "KEEPER_CHANGED")
                return Moved(True, _sync(root, copy))
        except FileTrouble as error:
            return Moved(False, _word(error.code))
        except OSError:
            return Moved(True, "FILE_CHANGED")  # swapped in the last instant, and its place was taken again

    def links(self, copy: Copy) -> int:
        """How many names its file has; 0 where it cannot be told."""
        try:
            with self._root(copy) as root:
                fd, facts = root.open_regular(copy.path)
                os.close(fd)
                return facts.st_nlink
        except FileTrouble:
            return 0

    def _read(
        self, root_path: str, path: str, facts: tuple[int, int] | None, should_stop: Stop
    ) -> Digest | Failure:
        try:
            with library_root(self.libraries_dir, root_path) as root:
                found = hash_file(root, path, self.algorithm, facts, should_stop=should_stop)
        except FileTrouble as error:
            return Failure(error.code)
        except BadPath:
            return Failure("BAD_PATH")
        if isinstance(found, Failure):
            return Failure(_word(found.code))
        if found.value != self.content_hash or (facts is not None and (found.size, found.mtime_ns) != facts):
            return Failure("FILE_CHANGED")
        return found

    def _stands(self, keeper: Copy, kept: Digest) -> bool:
        try:
            with self._root(keeper) as root:
                fd, facts = root.open_regular(keeper.path)
                os.close(fd)
        except FileTrouble:
            return False
        same = (signed(facts.st_dev), signed(facts.st_ino), facts.st_size, facts.st_mtime_ns)
        return same == (kept.device, kept.inode, kept.size, kept.mtime_ns)

    @contextmanager
    def _root(self, copy: Copy) -> Iterator[Beneath]:
        with library_root(self.libraries_dir, copy.root_path) as root:
            yield root


def same_file(one: Digest, other: Digest) -> bool:
    return _identity(one) == _identity(other)


def _identity(seen: Digest) -> tuple[int, int]:
    """Device and inode as os.stat gives them."""
    return seen.device & UNSIGNED, seen.inode & UNSIGNED


def _word(code: str) -> str:
    return "FILE_CHANGED" if code in CHANGED else code


def _back(root: Beneath, copy: Copy, seen: Digest, code: str) -> Moved:
    try:
        move_beneath(root, copy.trash_path, root, copy.path, expected=_identity(seen))
    except FileTrouble:
        return Moved(True, code)  # its name is taken: it lies in the trash, which is not lost
    return Moved(False, code)


def _sync(root: Beneath, copy: Copy) -> str | None:
    """Both directories on the disk, and the new ones with the directory that names each."""
    away = split(copy.trash_path)[0].split(b"/")
    places = [split(copy.path)[0], *(b"/".join(away[:depth]) for depth in range(len(away), -1, -1))]
    try:
        for place in dict.fromkeys(places):
            with root.open_directory(place) as directory:
                os.fsync(directory.fd)
    except FileTrouble as error:
        return error.code
    except OSError as error:
        # not every file system can
        return None if error.errno in (errno.EINVAL, errno.ENOTSUP) else "NOT_SYNCED"
    return None
