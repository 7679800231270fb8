"""Artifacts: files that belong to rows of the database, on one of several backends behind one protocol.

An artifact is known by its key, a relative path (`scm/1/svn/r100.diff`), which means the same on every
backend. What a backend promises:

- a put is all or nothing: readers see the whole new content or what was there before, and when put returns
  it has survived a crash of the machine; an interrupted put leaves nothing visible;
- the SHA-256 of what was stored is compared with what was sent, and with `expected_sha256` where given; on
  a mismatch nothing is published;
- keys are confined to the store: no absolute path, no `..`, no symbolic link on the way, and where
  `allowed_prefixes` are set nothing outside them;
- no call blocks the event loop.

Not promised: an order of `entries`, and that two stores of the backend `local` know of each other (each host
has its own; the address of an artifact says which).

The caller's duty: publish by a row, after put returned (an artifact that no row names is garbage), and delete
only what no row names any more.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import IO, Final

from supervisor.artifacts.errors import (
    AccessDenied,
    ArtifactError,
    ArtifactExists,
    ArtifactMissing,
    BadRange,
    ChecksumMismatch,
    Elsewhere,
    InvalidKey,
    NoSpace,
    QuotaExceeded,
    StoreFailed,
    TooLarge,
)

__all__ = [
    "MAX_FILE_SIZE",
    "AccessDenied",
    "Artifact",
    "ArtifactError",
    "ArtifactExists",
    "ArtifactMissing",
    "Artifacts",
    "BadRange",
    "ChecksumMismatch",
    "Content",
    "Elsewhere",
    "Entry",
    "InvalidKey",
    "NoSpace",
    "Overwrite",
    "QuotaExceeded",
    "StoreFailed",
    "TooLarge",
]

MAX_FILE_SIZE: Final = 10 * 1024 * 1024

Content = bytes | IO[bytes] | AsyncIterable[bytes]


class Overwrite(Enum):
    """What a put does when the key is taken."""

    REFUSE = "refuse"  # EXISTS
    SAME = "same"  # well, when the content is the same; else EXISTS
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Artifact:
    key: str
    size: int
    sha256: str
    uri: str


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    size: int
    modified_at: datetime


class Artifacts(ABC):
    @abstractmethod
    async def put(
        self,
        key: str,
        content: Content,
        *,
        overwrite: Overwrite = Overwrite.REFUSE,
        expected_sha256: str | None = None,
        limit: int | None = None,
    ) -> Artifact:
        """Store it. `limit` replaces the store's own bound of a file's size."""

    @abstractmethod
    def open(
        self, key: str, *, start: int = 0, length: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Its bytes in pieces, from `start` on, `length` of them; fewer where it ends before."""

    @abstractmethod
    async def stat(self, key: str) -> Entry:
        """Size and age, or ArtifactMissing."""

    @abstractmethod
    async def delete(self, key: str, *, trash: str | None = None) -> bool:
        """Remove it, or move it under the prefix `trash`; False = it was not there."""

    @abstractmethod
    def entries(self, prefix: str = "") -> AsyncIterator[Entry]:
        """All artifacts in that folder and below."""

    @abstractmethod
    async def place(self) -> str | None:
        """How the addresses of this store begin, and of no other; None = nothing was ever put here."""

    @abstractmethod
    async def uri(self, key: str) -> str:
        """The address of a key: where it is, for people and for other replicas."""

    @abstractmethod
    async def key_of(self, uri: str) -> str:
        """The key of an address of this store, or Elsewhere."""

    @abstractmethod
    async def sweep(self, *, older_than_days: float = 30) -> int:
        """Remove what interrupted puts left behind, and what was parked in tmp/."""

    async def exists(self, key: str) -> bool:
        try:
            await self.stat(key)
        except ArtifactMissing:
            return False
        return True

    async def get(self, key: str, *, sha256: str | None = None, limit: int = MAX_FILE_SIZE) -> bytes:
        """The whole content of a small artifact, verified where a SHA-256 is given."""
        pieces: list[bytes] = []
        size = 0
        async with self.open(key) as chunks:
            async for chunk in chunks:
                size += len(chunk)
                if size > limit:
                    raise TooLarge(key=key, limit=limit)
                pieces.append(chunk)
        content = b"".join(pieces)
        if sha256 is not None and (found := hashlib.sha256(content).hexdigest()) != sha256:
            raise ChecksumMismatch(key=key, found=found, expected=sha256)
        return content

    @abstractmethod
    async def verify(self, key: str, sha256: str | None = None) -> Artifact:
        """Read all of it and compare; ChecksumMismatch when it is not what was recorded."""
