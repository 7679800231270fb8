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
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
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
from supervisor.artifacts.key import key_in
from supervisor.artifacts.parallel import side_by_side
from supervisor.artifacts.reading import reported

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
    "Put",
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
class Put:
    """One of several, all of it in memory."""

    key: str
    content: bytes
    expected_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    size: int
    modified_at: datetime


class Artifacts(ABC):
    """`former_places` begin the addresses of stores whose content was moved here under its keys."""

    at_once: int = 8
    """How many small puts side by side make it faster."""

    def __init__(self, former_places: Iterable[str] = ()) -> None:
        self._former_places = tuple(former_places)

    @property
    @abstractmethod
    def where(self) -> str:
        """Which store this is, for messages."""

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

    async def put_all(
        self, puts: Sequence[Put], *, overwrite: Overwrite = Overwrite.REFUSE, limit: int | None = None
    ) -> list[Artifact | ArtifactError]:
        """Store each as `put` would, side by side; in their order what was stored, or why it was not."""

        async def one(put: Put) -> Artifact | ArtifactError:
            wanted = {"expected_sha256": put.expected_sha256, "overwrite": overwrite, "limit": limit}
            try:
                return await self.put(put.key, put.content, **wanted)  # type: ignore[arg-type]
            except ArtifactError as error:
                return error

        return await side_by_side(puts, one, self.at_once)

    @abstractmethod
    def open(
        self, key: str, *, start: int = 0, length: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Its bytes in pieces, from `start` on, `length` of them; fewer where it ends before."""

    @abstractmethod
    async def stat(self, key: str) -> Entry:
        """Size and age, or ArtifactMissing."""

    @abstractmethod
    async def delete(self, key: str, *, trash: str | None = None, before: datetime | None = None) -> bool:
        """Remove it, or move it under the prefix `trash`; False = it was not there.

        With `before`, only what was last put before that instant of this store's clock (a put that found the
        same content there counts); False = it was not there, or is younger.
        """

    @abstractmethod
    def entries(self, prefix: str = "") -> AsyncIterator[Entry]:
        """All artifacts in that folder and below."""

    @abstractmethod
    async def place(self) -> str | None:
        """How the addresses of this store begin, and of no other; None = nothing was ever put here."""

    async def places(self) -> list[str]:
        """The beginnings of all addresses whose content is here, those of former places too."""
        return [place for place in (await self.place(), *self._former_places) if place is not None]

    @abstractmethod
    async def uri(self, key: str) -> str:
        """The address of a key: where it is, for people and for other replicas."""

    @abstractmethod
    async def now(self) -> datetime:
        """The time of the clock that stamps `modified_at`."""

    @abstractmethod
    async def sweep(self, *, older_than_days: float = 30) -> int:
        """Remove what interrupted puts left behind, and what was parked in tmp/."""

    async def aclose(self) -> None:  # noqa: B027  most have none
        """Let go of connections. A store that is used again opens new ones."""

    async def key_of(self, uri: str) -> str:
        """The key of an address of this store, or of one that was moved here; else Elsewhere."""
        for place in await self.places():
            if uri.startswith(place):
                return key_in(uri, place)
        raise Elsewhere(uri=uri, place=self.where)

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
            with reported(key):
                raise ChecksumMismatch(key=key, found=found, expected=sha256)
        return content

    @abstractmethod
    async def verify(self, key: str, sha256: str | None = None) -> Artifact:
        """Read all of it and compare; ChecksumMismatch when it is not what was recorded."""
