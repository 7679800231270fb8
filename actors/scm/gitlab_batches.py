"""The commits of a GitLab project in batches, from where the last run came to.

GitLab lists commits newest first, and by the time of committing, which is no order to go on in: a branch that
is merged today brings commits of last month, and clocks are wrong. So a run does not ask for what came since:
it names the head it found, and asks for what is reachable from it and not from the head of the run before
(`old..new`). Such a list never changes while it is read. Windows of its pages are read from the last to the
first: oldest first, with one window in memory, sorted by time and id before it is handed on.

Where the last head is not known (the position was lost, or the head itself is gone from the server) the list
is that of all commits since the watermark, the watermark included: commits of one second are read again
rather than lost. The watermark is the latest time of commit so far. A position counts only together with the
watermark that it was stored with.

NOT guaranteed: without a position, commits that are older than the watermark and were merged later are not
found, nor those that git hides behind a commit with a wrong clock; reading from nothing finds them.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import anyio

from actors.scm.backoff import Trouble
from actors.scm.diffs import Diff, Spool
from actors.scm.gitlab import GitlabClient
from actors.scm.gitlab_answer import BadAnswer, instant_or_none
from actors.scm.gitlab_commits import CommitOptions, GitlabCommit, commit_diff, sha
from actors.scm.gitlab_listing import PATH, Listing, head_commit, last_page, read_window
from actors.scm.process import unwrapped
from actors.scm.records import Batch, SourceFailed, Unreadable

__all__ = ["CommitStart", "gitlab_commits"]


@dataclass(frozen=True, slots=True)
class CommitStart:
    """Where to go on; or a range of time to read once more (`since`, `until`), which moves no position."""

    watermark: datetime | None = None
    position: Mapping[str, Any] | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_range(self) -> bool:
        return self.since is not None or self.until is not None


async def gitlab_commits(
    gitlab: GitlabClient, start: CommitStart, options: CommitOptions
) -> AsyncIterator[Batch[GitlabCommit]]:
    """Batches, oldest first; the last one may be empty. Whoever takes a batch closes it."""
    reading = _Reading(gitlab, start, options)
    async for records, position, has_more in reading.chunks():
        watermark, unreadable = reading.watermark, reading.take_unreadable()
        if not (options.diffs and records):
            yield Batch(records, (), watermark, position, has_more, unreadable=unreadable)
            continue
        spool = Spool(options.scratch, options.diff_limit_bytes)
        try:
            diffs = await _diffs(gitlab, records, spool, options.parallelism)
        except BaseException:
            spool.close()
            raise
        yield Batch(records, diffs, watermark, position, has_more, spool, unreadable)


Chunk = tuple[Sequence[GitlabCommit], Mapping[str, Any], bool]


class _Reading:
    def __init__(self, gitlab: GitlabClient, start: CommitStart, options: CommitOptions) -> None:
        self._gitlab = gitlab
        self._start = start
        self._options = options
        self.watermark = start.watermark
        self._unreadable: list[Unreadable] = []

    def take_unreadable(self) -> Sequence[Unreadable]:
        """What was left out of the windows read so far; each is told of once."""
        told, self._unreadable = self._unreadable, []
        return tuple(dict.fromkeys(told))

    async def _window(self, listing: Listing) -> tuple[Sequence[GitlabCommit], bool]:
        told = self._unreadable if self._options.tolerant else None
        return await read_window(self._gitlab, listing, self._options, told)

    async def chunks(self) -> AsyncIterator[Chunk]:
        newest = await head_commit(self._gitlab, self._options.ref)
        if newest is None:
            yield (), dict(self._start.position or {}), False
            return
        head = newest.sha
        if self._options.overlap and self.watermark and not self._start.is_range:
            yield await self._overlap(head, self.watermark), dict(self._start.position or {}), True
        base, pending = await self._stored()
        if pending:
            async for chunk in self._listing(pending, last=False):
                yield chunk
            base = pending.head
        async for chunk in self._listing(self._new(head, base), last=True):
            yield chunk

    def _new(self, head: str, base: str | None) -> Listing:
        since, until = self._start.since, self._start.until
        if not self._start.is_range and base is None:
            since = self._start.watermark
        return Listing(head, base, since, until, self._gitlab.options.per_page)

    async def _stored(self) -> tuple[str | None, Listing | None]:
        """The head that is read completely, and the list that a run before was in the middle of."""
        given, watermark = self._start.position, self._start.watermark
        if not given or watermark is None or self._start.is_range:
            return None, None
        try:
            head, base = sha(given["head"]), given.get("base") and sha(given["base"])
            if instant_or_none(given.get("watermark")) != watermark:
                return None, None
            pending = "low" in given
            window = {name: int(given[name]) for name in ("per_page", "low", "high", "done") if pending}
        except (KeyError, TypeError, ValueError, BadAnswer):
            return None, None
        if not await self._is_there(head) or (base and not await self._is_there(base)):
            return None, None
        if not pending:
            return head, None
        return None, Listing(head, base, instant_or_none(given.get("since")), None, **window)

    async def _is_there(self, name: str) -> bool:
        try:
            await self._gitlab.get(f"{PATH}/{name}")
        except SourceFailed as failure:
            if failure.trouble is Trouble.NOT_FOUND:
                return False
            raise
        return True

    async def _overlap(self, head: str, watermark: datetime) -> Sequence[GitlabCommit]:
        """The last commits before the watermark once more."""
        again = Listing(head, until=watermark, per_page=self._options.overlap, low=1, high=1)
        return (await self._window(again))[0]

    async def _listing(self, listing: Listing, *, last: bool) -> AsyncIterator[Chunk]:
        if listing.head == listing.base:
            yield (), self._position(listing, whole=True), not last
            return
        fresh = not listing.high
        if fresh:
            listing = replace(listing, low=1, high=self._options.window_pages)
        records, ended = await self._window(listing)
        if fresh and not ended:
            listing = self._lower(listing, await last_page(self._gitlab, listing))
            self._unreadable.clear()  # those of a window that is read again when its turn has come
            records, _ = await self._window(listing)
        while True:
            for chunk, done in _cut(records, listing.done, self._options.batch_size):
                self._advance(chunk)
                ended = done >= len(records)
                whole = ended and listing.low <= 1
                at = self._lower(listing, listing.low - 1) if ended else replace(listing, done=done)
                yield chunk, self._position(at, whole=whole), not (whole and last)
            if listing.low <= 1:
                return
            listing = self._lower(listing, listing.low - 1)
            records, _ = await self._window(listing)

    def _lower(self, listing: Listing, high: int) -> Listing:
        return replace(listing, low=max(1, high - self._options.window_pages + 1), high=high, done=0)

    def _advance(self, chunk: Sequence[GitlabCommit]) -> None:
        for record in chunk:
            self.watermark = max(self.watermark or record.moment, record.moment)

    def _position(self, listing: Listing, *, whole: bool) -> dict[str, Any]:
        if self._start.is_range or self.watermark is None:
            return {}
        at = {"head": listing.head} if whole else listing.as_json()
        return {**at, "watermark": self.watermark.isoformat()}


def _cut(
    records: Sequence[GitlabCommit], done: int, size: int
) -> Iterator[tuple[Sequence[GitlabCommit], int]]:
    """Batches of what is not done yet, each with what is done then; an empty one where there is nothing."""
    for first in range(done, max(len(records), done + 1), size):
        chunk = records[first : first + size]
        yield chunk, first + len(chunk)


async def _diffs(
    gitlab: GitlabClient, records: Sequence[GitlabCommit], spool: Spool, parallelism: int
) -> list[Diff]:
    """Side by side, because they mostly wait. Of several failures at once the first is told."""
    found: dict[str, Diff] = {}
    failures: list[SourceFailed] = []
    todo = iter(records)

    async def worker() -> None:
        try:
            for record in todo:
                found[record.sha] = await commit_diff(gitlab, record, spool)
        except SourceFailed as failure:
            failures.append(failure)
            group.cancel_scope.cancel()

    with unwrapped():
        async with anyio.create_task_group() as group:
            for _ in range(min(parallelism, len(records))):
                group.start_soon(worker)
    if failures:
        raise failures[0]
    return [found[record.sha] for record in records]
