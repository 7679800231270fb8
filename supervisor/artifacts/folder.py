"""Artifacts in a directory tree: what the backends `local` and `file` share. They differ in addresses."""

import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import anyio
from anyio.to_thread import run_sync

from supervisor.artifacts import (
    MAX_FILE_SIZE,
    Artifact,
    ArtifactError,
    Artifacts,
    BadRange,
    ChecksumMismatch,
    Content,
    Entry,
    Overwrite,
    Put,
    TooLarge,
)
from supervisor.artifacts.bounds import Bounds
from supervisor.artifacts.draft import Draft
from supervisor.artifacts.group import TOGETHER, Group, Wanted
from supervisor.artifacts.key import check_prefix
from supervisor.artifacts.parcel import pieces_of
from supervisor.artifacts.quota import Quota
from supervisor.artifacts.reading import reported
from supervisor.artifacts.tree import PIECE, Names, Tree

LISTED: Final = 500
DAY_SECONDS: Final = 86400


class FolderArtifacts(Artifacts):
    """`quota_bytes` bounds what is stored; several processes may pass it by what they write in a minute."""

    at_once = TOGETHER

    def __init__(
        self,
        root: Path,
        *,
        allowed_prefixes: Iterable[str] | None = None,
        max_file_size: int = MAX_FILE_SIZE,
        quota_bytes: int | None = None,
        former_places: Iterable[str] = (),
        make_root: bool = True,
        private: bool = False,
        listed: int = LISTED,
    ) -> None:
        super().__init__(former_places)
        self._tree = Tree(root, make_root=make_root, private=private)
        self._bounds = Bounds(allowed_prefixes=allowed_prefixes, max_file_size=max_file_size)
        self._quota = Quota(quota_bytes, self._count)
        self._group = Group(self._tree)
        self._listed = listed

    async def put(
        self,
        key: str,
        content: Content,
        *,
        overwrite: Overwrite = Overwrite.REFUSE,
        expected_sha256: str | None = None,
        limit: int | None = None,
    ) -> Artifact:
        names = self._bounds.names(key)
        uri = await self.uri(key)
        bound = self._bounds.max_file_size if limit is None else limit
        if isinstance(content, bytes):
            if len(content) > bound:
                raise TooLarge(key=key, limit=bound)
            wanted = Wanted(names, content, overwrite, expected_sha256)
            async with self._quota.room(key, len(content)):
                await self._group.put(wanted)
                sha256 = wanted.answer()
            return Artifact(key, len(content), sha256, uri)
        draft = await run_sync(partial(Draft, self._tree, names, limit=bound))
        try:
            async with aclosing(pieces_of(content)) as pieces:
                async for piece in pieces:
                    await run_sync(draft.write, piece)
            async with self._quota.room(key, draft.size):
                await run_sync(draft.publish, overwrite, expected_sha256)
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(draft.discard)
        return Artifact(key, draft.size, draft.sha256, uri)

    async def put_all(
        self, puts: Sequence[Put], *, overwrite: Overwrite = Overwrite.REFUSE, limit: int | None = None
    ) -> list[Artifact | ArtifactError]:
        """In one go, where no quota wants each to be counted before the next."""
        if self._quota.bounded:
            return await super().put_all(puts, overwrite=overwrite, limit=limit)
        bound = self._bounds.max_file_size if limit is None else limit
        asked = [await self._asked(put, overwrite, bound) for put in puts]
        await self._group.put(*(one[0] for one in asked if isinstance(one, tuple)))
        return [_answer(put.key, one) for put, one in zip(puts, asked, strict=True)]

    async def _asked(self, put: Put, overwrite: Overwrite, bound: int) -> tuple[Wanted, str] | ArtifactError:
        """It with its address, or why it is not even tried."""
        try:
            names = self._bounds.names(put.key)
            uri = await self.uri(put.key)
        except ArtifactError as error:
            return error
        if len(put.content) > bound:
            return TooLarge(key=put.key, limit=bound)
        return Wanted(names, put.content, overwrite, put.expected_sha256), uri

    @asynccontextmanager
    async def open(
        self, key: str, *, start: int = 0, length: int | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        names = self._bounds.names(key)
        with reported(key):
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
        return await run_sync(self._tree.entry, self._bounds.names(key))

    async def verify(self, key: str, sha256: str | None = None) -> Artifact:
        with reported(key):
            size, found = await run_sync(self._tree.digest, self._bounds.names(key))
            if sha256 is not None and found != sha256:
                raise ChecksumMismatch(key=key, found=found, expected=sha256)
        return Artifact(key, size, found, await self.uri(key))

    async def delete(self, key: str, *, trash: str | None = None, before: datetime | None = None) -> bool:
        names = self._bounds.names(key)
        target = None if trash is None else (*check_prefix(trash), *names)
        return await run_sync(self._tree.take_away, names, target, before.timestamp() if before else None)

    async def entries(self, prefix: str = "") -> AsyncIterator[Entry]:
        walk = self._tree.walk(check_prefix(prefix))
        try:
            while batch := await run_sync(lambda: list(islice(walk, self._listed))):
                for entry in batch:
                    if self._bounds.allow(entry.key):
                        yield entry
        finally:
            walk.close()

    async def now(self) -> datetime:
        # the times of files are the file system's, so its host's clock is the one to compare with
        return datetime.fromtimestamp(time.time(), UTC)

    async def sweep(self, *, older_than_days: float = 30) -> int:
        return await run_sync(self._tree.sweep, time.time() - older_than_days * DAY_SECONDS)

    async def _read(self, names: Names, number: int, start: int, end: int) -> AsyncGenerator[bytes, None]:
        while start < end:
            with reported("/".join(names)):
                piece = await run_sync(self._tree.read, number, names, start, min(PIECE, end - start))
            if not piece:
                return
            start += len(piece)
            yield piece

    async def _count(self) -> int:
        return await run_sync(lambda: sum(entry.size for entry in self._tree.walk()))


def _answer(key: str, asked: tuple[Wanted, str] | ArtifactError) -> Artifact | ArtifactError:
    if isinstance(asked, ArtifactError):
        return asked
    wanted, uri = asked
    try:
        return Artifact(key, len(wanted.content), wanted.answer(), uri)
    except ArtifactError as error:
        return error
