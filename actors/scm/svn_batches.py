"""The revisions of a Subversion repository in batches, from where the last run came to.

    async with svn_batches(source, SvnStart.after(position), options) as batches:
        async for batch in batches:
            ...  # store records, diffs and batch.position in one transaction
            batch.close()

The cursor is the number of the last revision that was read: revisions are never added behind it. A run
reads up to the youngest revision found at its beginning. Where the URL names a folder, revisions that did
not touch it are missing, and the last batch moves the cursor over them. The repository's UUID stands in the
cursor: another repository under the same address is refused instead of being mixed into the first.

A tolerant reader leaves out a revision whose log makes no sense, and the diff that the server fails at; the
batch tells of them, and its cursor is behind them.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from actors.scm.backoff import Trouble
from actors.scm.diffs import Diff, Spool
from actors.scm.ordered import Job, in_order
from actors.scm.process import unwrapped
from actors.scm.records import Batch, SvnRevision, Unreadable
from actors.scm.svn import FAILED_DIFF, SvnHead, SvnOptions, SvnSource, TakeRevisions

__all__ = ["SvnStart", "svn_batches"]

PAGES_AHEAD = 3


@dataclass(frozen=True, slots=True)
class SvnStart:
    """From which revision on, and up to which (None: the youngest); `uuid` of the repository when known."""

    first: int = 1
    last: int | None = None
    uuid: str | None = None
    watermark: int = 0

    @classmethod
    def after(cls, position: Mapping[str, Any] | None, overlap: int = 0) -> "SvnStart":
        """Behind a stored position; the last `overlap` revisions once more."""
        if not position:
            return cls()
        rev = int(position["rev"])
        return cls(max(1, rev + 1 - overlap), None, position.get("uuid"), rev)


@asynccontextmanager
async def svn_batches(
    source: SvnSource, start: SvnStart, options: SvnOptions
) -> AsyncIterator[AsyncIterator[Batch[SvnRevision]]]:
    """Batches in the order of revisions; the next one is read while one is being stored."""
    send, receive = anyio.create_memory_object_stream[Batch[SvnRevision]](0)
    with unwrapped(), send, receive:
        async with anyio.create_task_group() as group:
            group.start_soon(_Reading(source, start, options, send).run)
            try:
                yield receive
            finally:
                group.cancel_scope.cancel()


class _Reading:
    def __init__(
        self,
        source: SvnSource,
        start: SvnStart,
        options: SvnOptions,
        send: MemoryObjectSendStream[Batch[SvnRevision]],
    ) -> None:
        self._source = source
        self._start = start
        self._options = options
        self._send = send
        self._next = start.first
        self._at = max(start.watermark, start.first - 1)
        self._last = 0
        self._held: list[SvnRevision] = []
        self._unreadable: list[Unreadable] = []
        self._head = SvnHead("", "", 0)

    async def run(self) -> None:
        with self._send:
            self._head = await self._source.head()
            self._same_repository()
            youngest = self._head.rev
            self._last = youngest if self._start.last is None else min(self._start.last, youngest)
            async with in_order(self._pages(), PAGES_AHEAD) as pages:
                async for revisions in pages:
                    await self._take(revisions)
            self._at = max(self._at, self._last)
            await self._hand_on(has_more=False)

    def _pages(self) -> Iterator[Job[Sequence[SvnRevision]]]:
        """The root has every revision, so its pages are known; of a folder each begins behind the last."""
        if not self._source.is_root(self._head):
            yield self._page_after_page
            return
        size = self._options.page_size
        for first in range(self._start.first, self._last + 1, size):
            yield partial(self._page, first, min(first + size - 1, self._last))

    async def _page(self, first: int, last: int, take: TakeRevisions) -> None:
        await self._source.page(first, last, self._head.rev, self._options, take)

    async def _page_after_page(self, take: TakeRevisions) -> None:
        first, seen = self._start.first, 0

        async def count(revisions: Sequence[SvnRevision]) -> None:
            nonlocal first, seen
            seen += len(revisions)
            first = max([first, *(revision.rev + 1 for revision in revisions)])
            await take(revisions)

        while first <= self._last:  # svn would turn an empty range around
            seen = 0
            await self._page(first, self._last, count)
            if seen < self._options.page_size:
                return

    def _same_repository(self) -> None:
        start, head = self._start, self._head
        if start.uuid is not None and start.uuid != head.uuid:
            what = "it is another repository than before (its UUID changed)"
            raise self._source.failed(Trouble.BAD_CONFIG, what)
        if start.watermark > head.rev:
            what = f"its youngest revision is {head.rev}, and {start.watermark} was read before"
            raise self._source.failed(Trouble.SERVER_ERROR, what)

    async def _take(self, revisions: Sequence[SvnRevision]) -> None:
        for revision in revisions:
            if not self._next <= revision.rev <= self._last:
                raise self._source.failed(
                    Trouble.SERVER_ERROR, "its log has a revision that was not asked for"
                )
            if len(self._held) + len(self._unreadable) >= self._options.batch_size:
                self._at = max(self._at, self._next - 1)
                await self._hand_on(has_more=True)
            if revision.fault:
                self._unreadable.append(Unreadable(f"revision {revision.rev}", "bad_record", revision.fault))
            else:
                self._held.append(revision)
            self._next = revision.rev + 1

    async def _hand_on(self, *, has_more: bool) -> None:
        records, self._held = tuple(self._held), []
        unreadable, self._unreadable = self._unreadable, []
        position = {"rev": self._at, "uuid": self._head.uuid}
        if not (self._options.diffs and records):
            await self._send.send(Batch(records, (), self._at, position, has_more, unreadable=unreadable))
            return
        spool = Spool(self._source.scratch, self._options.diff_limit_bytes)
        try:
            diffs = await self._diffs(records, spool)
            unreadable += [
                Unreadable(f"diff of revision {diff.of}", Trouble.SERVER_ERROR.value, "svn diff failed")
                for diff in diffs
                if diff.reason == FAILED_DIFF
            ]
            await self._send.send(Batch(records, diffs, self._at, position, has_more, spool, unreadable))
        except BaseException:
            spool.close()
            raise

    async def _diffs(self, records: Sequence[SvnRevision], spool: Spool) -> list[Diff]:
        """Side by side, because svn mostly waits. Of several that fail at once the first is told."""
        found: dict[int, Diff] = {}
        todo = iter(records)

        async def worker() -> None:
            for record in todo:
                found[record.rev] = await self._source.diff(record, self._head.rev, self._options, spool)

        with unwrapped():
            async with anyio.create_task_group() as group:
                for _ in range(min(self._options.parallelism, len(records))):
                    group.start_soon(worker)
        return [found[record.rev] for record in records]
