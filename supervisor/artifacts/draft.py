"""New content on its way into a tree. Blocking.

It is written to `tmp/<name>.tmp.<uuid>`, flushed to the disk, read back and compared; then it appears under
its name by a link (which refuses a taken name) or a rename, and the directory is flushed too. Whatever
ends the process on the way, a reader sees nothing of it, and `Tree.sweep` finds what was left.
"""

import hashlib
import os
import uuid
from contextlib import suppress
from typing import Final

from supervisor.artifacts import Overwrite
from supervisor.artifacts.errors import ArtifactExists, ArtifactMissing, ChecksumMismatch, TooLarge
from supervisor.artifacts.key import IDENTITY
from supervisor.artifacts.tree import FILE, TMP, Names, Tree, digest, open_file

NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_MODE: Final = 0o640


class Draft:
    """Invisible until `publish`, and gone after `discard`, which every draft needs."""

    def __init__(self, tree: Tree, names: Names, *, limit: int) -> None:
        self._tree = tree
        self._names = names
        self._key = "/".join(names)
        self._limit = limit
        self._temporary = f"{names[-1]}.tmp.{uuid.uuid4().hex}"
        self._hash = hashlib.sha256()
        self.size = 0
        with tree.faults((TMP, self._temporary)), tree.directory((TMP,), make=True) as inside:
            self._file = os.open(self._temporary, NEW, FILE_MODE, dir_fd=inside)
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
        if expected_sha256 is not None and self.sha256 != expected_sha256:
            raise ChecksumMismatch(key=self._key, found=self.sha256, expected=expected_sha256)
        with self._tree.faults(self._names):
            os.fsync(self._file)
            self._read_back()
            with self._tree.directory(self._names[:-1], make=True) as inside:
                self._name_it(inside, overwrite)
                os.fsync(inside)

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

    def _name_it(self, inside: int, overwrite: Overwrite) -> None:
        name = self._names[-1]
        if overwrite is Overwrite.REPLACE:
            os.rename(self._temporary, name, src_dir_fd=self._tmp, dst_dir_fd=inside)
            return
        try:
            os.link(self._temporary, name, src_dir_fd=self._tmp, dst_dir_fd=inside, follow_symlinks=False)
        except FileExistsError:
            if overwrite is Overwrite.REFUSE:
                raise ArtifactExists(key=self._key) from None
            self._compare(inside)

    def _compare(self, inside: int) -> None:
        number = open_file(inside, self._names)
        try:
            if digest(number) != (self.size, self.sha256):
                raise ArtifactExists(key=self._key)
            # whoever wrote it may have died before it was on the disk
            os.fsync(number)
        finally:
            os.close(number)


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
