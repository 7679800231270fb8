"""The backend `local`: files of this host, below one directory.

An address is `local://<store>@<host>/<key>`. The store's name is a file in its directory, so a volume that
moves to another host stays the same store; the host is there for people, and says where it was written.
"""

import os
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import anyio
from anyio.to_thread import run_sync

from supervisor.artifacts import (
    MAX_FILE_SIZE,
    Artifact,
    Artifacts,
    BadRange,
    ChecksumMismatch,
    Content,
    Elsewhere,
    Entry,
    InvalidKey,
    Overwrite,
    QuotaExceeded,
)
from supervisor.artifacts.draft import Draft, make_identity, read_identity
from supervisor.artifacts.key import allowed, check_key, check_prefix
from supervisor.artifacts.tree import PIECE, Names, Tree
from supervisor.config import Settings

LISTED: Final = 500
QUOTA_SECONDS: Final = 60.0
DAY_SECONDS: Final = 86400


class LocalArtifacts(Artifacts):
    """`quota_bytes` bounds what is stored; several writers may pass it by what they write in a minute."""

    def __init__(
        self,
        root: Path,
        *,
        allowed_prefixes: Iterable[str] = (),
        max_file_size: int = MAX_FILE_SIZE,
        quota_bytes: int | None = None,
        host: str | None = None,
    ) -> None:
        self._tree = Tree(root)
        self._prefixes = [check_prefix(prefix) for prefix in allowed_prefixes]
        self._max_file_size = max_file_size
        self._quota_bytes = quota_bytes
        self._used: tuple[float, int] = (float("-inf"), 0)
        self._host = host or socket.gethostname()
        self._store: str | None = None

    async def put(
        self,
        key: str,
        content: Content,
        *,
        overwrite: Overwrite = Overwrite.REFUSE,
        expected_sha256: str | None = None,
        limit: int | None = None,
    ) -> Artifact:
        names = self._names(key)
        uri = await self.uri(key)
        bound = self._max_file_size if limit is None else limit
        draft = await run_sync(partial(Draft, self._tree, names, limit=bound))
        try:
            async with aclosing(_pieces(content)) as pieces:
                async for piece in pieces:
                    await run_sync(draft.write, piece)
            await self._require_room(key, draft.size)
            await run_sync(draft.publish, overwrite, expected_sha256)
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(draft.discard)
        return Artifact(key, draft.size, draft.sha256, uri)

    @asynccontextmanager
    async def open(
        self, key: str, *, start: int = 0, length: int | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        names = self._names(key)
        number = await run_sync(self._tree.open, names)
        try:
            size = (await run_sync(os.fstat, number)).st_size
            if start < 0 or start > size or (length is not None and length < 0):
                raise BadRange(key=key, size=size, start=start, length=length)
            end = size if length is None else min(size, start + length)
            async with aclosing(self._read(names, number, start, end)) as pieces:
                yield pieces
        finally:
            os.close(number)

    async def stat(self, key: str) -> Entry:
        return await run_sync(self._tree.entry, self._names(key))

    async def verify(self, key: str, sha256: str | None = None) -> Artifact:
        size, found = await run_sync(self._tree.digest, self._names(key))
        if sha256 is not None and found != sha256:
            raise ChecksumMismatch(key=key, found=found, expected=sha256)
        return Artifact(key, size, found, await self.uri(key))

    async def delete(self, key: str, *, trash: str | None = None) -> bool:
        names = self._names(key)
        if trash is None:
            return await run_sync(self._tree.remove, names)
        return await run_sync(self._tree.move, names, (*check_prefix(trash), *names))

    async def entries(self, prefix: str = "") -> AsyncIterator[Entry]:
        names = check_prefix(prefix)
        walk = self._tree.walk(names)
        try:
            while batch := await run_sync(lambda: list(islice(walk, LISTED))):
                for entry in batch:
                    if not self._prefixes or allowed(tuple(entry.key.split("/")), self._prefixes):
                        yield entry
        finally:
            walk.close()

    async def place(self) -> str | None:
        if self._store is None:
            self._store = await run_sync(read_identity, self._tree)
        return None if self._store is None else f"local://{self._store}@"

    async def uri(self, key: str) -> str:
        check_key(key)
        if self._store is None:
            self._store = await run_sync(make_identity, self._tree)
        return f"local://{self._store}@{quote(self._host)}/{quote(key)}"

    async def key_of(self, uri: str) -> str:
        place = await self.place()
        if place is None or not uri.startswith(place):
            raise Elsewhere(uri=uri, place=f"{self._tree.root} on {self._host}")
        key = unquote(urlsplit(uri).path.removeprefix("/"))
        check_key(key)
        return key

    async def sweep(self, *, older_than_days: float = 30) -> int:
        # the times of files are the file system's, so its host's clock is the one to compare with
        return await run_sync(self._tree.sweep, time.time() - older_than_days * DAY_SECONDS)

    def _names(self, key: str) -> Names:
        names = check_key(key)
        if self._prefixes and not allowed(names, self._prefixes):
            raise InvalidKey(key=key, what="is outside the allowed prefixes")
        return names

    async def _read(self, names: Names, number: int, start: int, end: int) -> AsyncGenerator[bytes, None]:
        while start < end:
            piece = await run_sync(self._tree.read, number, names, start, min(PIECE, end - start))
            if not piece:
                return
            start += len(piece)
            yield piece

    async def _require_room(self, key: str, size: int) -> None:
        if self._quota_bytes is None:
            return
        seen_at, used = self._used
        if time.monotonic() - seen_at > QUOTA_SECONDS:
            used = await run_sync(lambda: sum(entry.size for entry in self._tree.walk()))
            seen_at = time.monotonic()
        if used + size > self._quota_bytes:
            raise QuotaExceeded(key=key, what=f"{used} of {self._quota_bytes} bytes are used")
        self._used = (seen_at, used + size)


def local_artifacts(settings: Settings) -> LocalArtifacts:
    """The store of this replica."""
    return LocalArtifacts((settings.artifacts_dir or settings.state_dir / "artifacts").absolute())


async def _pieces(content: Content) -> AsyncGenerator[bytes, None]:
    if isinstance(content, bytes):
        yield content
    elif isinstance(content, AsyncIterable):
        async for piece in content:
            yield piece
    else:
        while piece := await run_sync(content.read, PIECE):
            yield piece
