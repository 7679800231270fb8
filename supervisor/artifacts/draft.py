"""New content on its way into a tree. Blocking.

It is written to `tmp/<name>.tmp.<uuid>`, flushed to the disk, read back and compared; then it appears under
its name by a link (which refuses a taken name) or a rename, and the directory is flushed too. Whatever
ends the process on the way, a reader sees nothing of it, and `Tree.sweep` finds what was left.
"""

import ctypes
import errno
import fcntl
import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from supervisor.artifacts import Overwrite
from supervisor.artifacts.errors import (
    ArtifactExists,
    ArtifactMissing,
    ChecksumMismatch,
    TooLarge,
)
from supervisor.artifacts.key import IDENTITY
from supervisor.artifacts.tree import FILE, TMP, Names, Tree, digest, grant, is_named, require_plain

NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
RENAME_NOREPLACE: Final = 1


class Draft:
    """Invisible until `publish`, and gone after `discard`, which every draft needs."""

    def __init__(self, tree: Tree, names: Names, *, limit: int, tmp: int | None = None) -> None:
        """`tmp` is the directory for it, where the caller has it open."""
        self._tree = tree
        self._names = names
        self._key = "/".join(names)
        self._limit = limit
        self._temporary = f"{names[-1]}.tmp.{uuid.uuid4().hex}"
        self._hash = hashlib.sha256()
        self.size = 0
        with tree.faults((TMP, self._temporary)):
            if tmp is not None:
                self._create(tmp)
                return
            with tree.directory((TMP,), make=True) as inside:
                self._create(inside)

    def _create(self, inside: int) -> None:
        self._file = os.open(self._temporary, NEW, self._tree.modes.file, dir_fd=inside)
        grant(self._file, self._tree.modes.file)
        self._tmp = os.dup(inside)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self._limit:
            raise TooLarge(key=self._key, limit=self._limit)
        self._hash.update(piece)
        rest = memoryview(piece)
        with self._tree.faults(self._names):
            while rest:
                rest = rest[os.write(self._file, rest) :]

    def publish(self, overwrite: Overwrite, expected_sha256: str | None = None) -> None:
        """Nothing is seen under the key unless the disk holds what was sent and what was expected."""
        self.expect(expected_sha256)
        self.flush()
        self.check()
        with self._tree.faults(self._names), self._tree.directory(self._names[:-1], make=True) as inside:
            self.name(inside, overwrite)
            self._tree.flush(inside)

    def hurry(self) -> None:
        """Let the system begin to write it to the disk. A hint: it is there when it is flushed."""
        with suppress(OSError):
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)

    def flush(self) -> None:
        with self._tree.faults(self._names):
            os.fsync(self._file)

    def expect(self, sha256: str | None) -> None:
        if sha256 is not None and self.sha256 != sha256:
            raise ChecksumMismatch(key=self._key, found=self.sha256, expected=sha256)

    def check(self) -> None:
        """What the system gives back is what was sent."""
        with self._tree.faults(self._names):
            self._read_back()

    def discard(self) -> None:
        """Let go of it; published content stays, under its key only."""
        with suppress(FileNotFoundError):
            os.unlink(self._temporary, dir_fd=self._tmp)
        os.close(self._file)
        os.close(self._tmp)

    def _read_back(self) -> None:
        number = os.open(self._temporary, FILE, dir_fd=self._tmp)
        try:
            found = digest(number)
        finally:
            os.close(number)
        if found != (self.size, self.sha256):
            raise ChecksumMismatch(key=self._key, found=found[1], expected=self.sha256)

    def name(self, inside: int, overwrite: Overwrite) -> None:
        """Flushed and checked, it appears in its directory, which is still to be flushed."""
        if overwrite is Overwrite.REPLACE:
            with self._held(inside, passing=(errno.ENOENT, errno.ELOOP)):
                self._replace(inside)
            return
        while not self._new_name(inside):
            if overwrite is Overwrite.REFUSE:
                raise ArtifactExists(key=self._key)
            with self._held(inside, passing=(errno.ENOENT,)) as there:
                # gone again: whoever removed it held its lock, so the name is free
                if there is not None and is_named(inside, self._names[-1], there):
                    self._compare(there)
                    return

    def _new_name(self, inside: int) -> bool:
        try:
            give_name(self._temporary, self._names[-1], self._tmp, inside)
        except FileExistsError:
            # over a network the answer to our own first try may have been lost
            return is_named(inside, self._names[-1], self._file)
        return True

    def _replace(self, inside: int) -> None:
        try:
            os.rename(self._temporary, self._names[-1], src_dir_fd=self._tmp, dst_dir_fd=inside)
        except FileNotFoundError:
            if not is_named(inside, self._names[-1], self._file):
                raise

    @contextmanager
    def _held(self, inside: int, *, passing: tuple[int, ...]) -> Iterator[int | None]:
        """What has the name, under its lock: who removes what is forgotten has that lock alone."""
        try:
            number = os.open(self._names[-1], FILE, dir_fd=inside)
        except OSError as error:
            if error.errno not in passing:
                raise
            number = None
        try:
            if number is not None:
                fcntl.flock(number, fcntl.LOCK_SH)
            yield number
        finally:
            if number is not None:
                os.close(number)

    def _compare(self, there: int) -> None:
        require_plain(there, self._names)
        if digest(there) != (self.size, self.sha256):
            raise ArtifactExists(key=self._key)
        # it is put anew, and so it is young
        os.utime(there)
        # whoever wrote it may have died before it was on the disk
        os.fsync(there)


def give_name(temporary: str, name: str, source: int, target: int) -> None:
    """A free name, or FileExistsError. Some shares have no links; those can rename on that condition."""
    try:
        os.link(temporary, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EMLINK):
            raise
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.renameat2(source, os.fsencode(temporary), target, os.fsencode(name), RENAME_NOREPLACE) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number)) from None


def read_identity(tree: Tree) -> str | None:
    """The name of a tree, a file that goes with it wherever it is mounted; None = it has none yet."""
    try:
        with tree.file((IDENTITY,)) as number:
            return os.read(number, 64).decode().strip()
    except ArtifactMissing:
        return None


def make_identity(tree: Tree) -> str:
    """The name of a tree; of several who give it one at the same time, one prevails."""
    while (found := read_identity(tree)) is None:
        draft = Draft(tree, (IDENTITY,), limit=64)
        try:
            draft.write(uuid.uuid4().hex.encode())
            with suppress(ArtifactExists):
                draft.publish(Overwrite.REFUSE)
        finally:
            draft.discard()
    return found
