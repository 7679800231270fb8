"""Diffs on their way to the artifacts, and the rules that make a change a bulk one.

A spool takes the diffs of one batch one after the other into one file that has no name, with the SHA-256 and
the size of each. A diff beyond the limit is cut off there: it is not stored, and what is known of it without
its content (the ministat) stands in its place, with the reason.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

__all__ = [
    "NO_BULK",
    "Bulk",
    "Diff",
    "DiffSink",
    "Ministat",
    "Spool",
    "bulk_by_lines",
    "bulk_by_paths",
    "bulk_by_size",
]

SVN_PATHS: Final = 100
GIT_LINES: Final = 1000
DIFF_BYTES: Final = 1 << 20
PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Bulk:
    """Whether a change is too large to be looked at line by line, and why."""

    is_bulk: bool = False
    reason: str | None = None


NO_BULK: Final = Bulk()


def bulk_by_paths(paths: int, threshold: int = SVN_PATHS) -> Bulk:
    """More paths than the threshold; as many as it are none."""
    return _bulk(paths, threshold)


def bulk_by_lines(additions: int, deletions: int, threshold: int = GIT_LINES) -> Bulk:
    return _bulk(additions + deletions, threshold)


def _bulk(count: int, threshold: int) -> Bulk:
    return Bulk(is_bulk=True, reason=f"large_changeset:{count}") if count > threshold else NO_BULK


@dataclass(frozen=True, slots=True)
class Ministat:
    """What is told of a diff that is not stored. Of its bytes only those read are counted: there are more."""

    files: int
    bytes: int
    additions: int | None = None
    deletions: int | None = None

    def as_json(self) -> dict[str, int]:
        facts = {"files": self.files, "bytes_at_least": self.bytes}
        known = {"additions": self.additions, "deletions": self.deletions}
        return facts | {name: count for name, count in known.items() if count is not None}


@dataclass(frozen=True, slots=True)
class Diff:
    """The diff of one revision or commit: either `sha256` and content, or a `reason` and a ministat."""

    of: str
    size: int
    sha256: str | None
    reason: str | None = None
    ministat: Ministat | None = None
    spool: "Spool | None" = field(default=None, repr=False, compare=False)
    offset: int = field(default=0, repr=False, compare=False)

    @property
    def degraded(self) -> bool:
        return self.sha256 is None

    def read(self) -> bytes:
        """The whole content; it is no longer than the limit it was spooled with. Blocks: for a thread."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        if self.spool is None or self.degraded:
            raise ValueError(f"the diff of {self.of} has no content")
        return self.spool.pieces(self.offset, self.size)


class Spool:
    """The diffs of one batch, in one file without a name. Closed with the batch, by whoever took it."""

    def __init__(self, scratch: Path, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._file = tempfile.TemporaryFile(dir=scratch, buffering=0)  # noqa: SIM115  closed by close()
        self._end = 0

    def sink(self, of: str, ministat: Ministat) -> "DiffSink":
        """A place for the diff of `of`. Several may be written at the same time."""
        return DiffSink(self, of, ministat)

    def reserve(self) -> int:
        """Room for one diff. The file has holes instead of what was not used of it."""
        offset, self._end = self._end, self._end + self.limit_bytes
        return offset

    def write(self, data: bytes, at: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._file.fileno(), view, at)
            view, at = view[written:], at + written

    def pieces(self, offset: int, size: int) -> Iterator[bytes]:
        end = offset + size
        while offset < end:
            piece = os.pread(self._file.fileno(), min(PIECE_BYTES, end - offset), offset)
            if not piece:
                raise OSError("the spool is shorter than what was put into it")
            yield piece
            offset += len(piece)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def bulk_by_size(counted: Bulk, diff: Diff | None, threshold: int = DIFF_BYTES) -> Bulk:
    """What a change was counted to be; one that passed is bulk all the same when its diff is that long."""
    if counted.is_bulk or diff is None or diff.size <= threshold:
        return counted
    return Bulk(is_bulk=True, reason=f"large_diff:{diff.size}")


class DiffSink:
    """One diff on its way into the spool. `write` and `done` are for one thread at a time."""

    def __init__(self, spool: Spool, of: str, ministat: Ministat) -> None:
        self.of = of
        self._spool = spool
        self._ministat = ministat
        self._offset = spool.reserve()
        self._hash = hashlib.sha256()
        self._size = 0

    @property
    def too_large(self) -> bool:
        return self._size > self._spool.limit_bytes

    def write(self, data: bytes) -> None:
        at = self._offset + self._size
        # Of one that is too large no more is known than that: how the bytes came in chunks is no fact of it.
        self._size = min(self._size + len(data), self._spool.limit_bytes + 1)
        if not self.too_large:
            self._hash.update(data)
            self._spool.write(data, at)

    def overflow(self) -> Diff:
        """It is too large, though nobody has read that much of it."""
        self._size = self._spool.limit_bytes + 1
        return self.done()

    def done(self) -> Diff:
        """The diff is whole, or too large."""
        if self.too_large:
            return self.degraded(f"diff_too_large:{self._spool.limit_bytes}")
        return Diff(self.of, self._size, self._hash.hexdigest(), spool=self._spool, offset=self._offset)

    def degraded(self, reason: str) -> Diff:
        stat = self._ministat
        told = Ministat(stat.files, self._size, stat.additions, stat.deletions)
        return Diff(self.of, self._size, None, reason, told)
