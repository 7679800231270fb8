"""The commits of a mirror in batches, from where the last run came to.

    async with mirror.open() as repository, git_batches(repository, start, options) as batches:
        async for batch in batches:
            ...  # store records, diffs and batch.position in one transaction
            batch.close()

The watermark is a committed date, but dates prove little: a merge or a forced push brings in commits that are
older than it, and a clock that ran ahead puts it into the future. So the position says what was read by name:

- `known`: everything that can be reached from these commits is stored;
- `goal` and `at`: a walk towards these commits was under way; of what they add to `known` everything up to
  (date, name) = `at` is stored.

A run finishes the walk it finds first, and then walks from there to the branches of today. A walk goes by
(committed date, name), so equal dates lose nothing, whichever of them a batch ends with. Names that the
mirror does not have (it was made anew after a forced push) prove nothing and are left out: then more is read
again, and storing it again changes nothing. A position that has a watermark and no names (one that was
rebuilt, or another program's) is taken by its word: everything from that date on, inclusive.
"""

import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from actors.scm.diffs import Diff, Spool
from actors.scm.git_repository import GitOptions, GitRepository, Listed, date_of, listed, sha_of
from actors.scm.ordered import Job, in_order
from actors.scm.process import unwrapped
from actors.scm.records import Batch, GitCommit

__all__ = ["GitStart", "git_batches"]

SLICE: Final = 4000
"""Commits a program: few enough to go side by side, many enough that starting it costs little."""

FACTS_AHEAD: Final = 20_000
"""Commits and files of a slice that are read before its turn comes: some megabytes, whatever the commits."""


@dataclass(frozen=True, slots=True)
class GitStart:
    """Where to go on, and what to read besides: the `overlap` newest of what is known, or a span of dates."""

    watermark: datetime | None = None
    known: tuple[str, ...] | None = None
    goal: tuple[str, ...] = ()
    at: tuple[int, str] | None = None
    overlap: int = 0
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, position: Mapping[str, Any] | None, overlap: int = 0) -> "GitStart":
        if not position:
            return cls(overlap=overlap)
        mark, names, at = position.get("watermark"), position.get("known"), position.get("at")
        return cls(
            watermark=datetime.fromisoformat(mark) if mark else None,
            known=None if names is None else tuple(names),
            goal=tuple(position.get("goal") or ()),
            at=(int(at[0]), str(at[1])) if at else None,
            overlap=overlap,
        )

    @classmethod
    def backfill(cls, since: datetime | None, until: datetime | None) -> "GitStart":
        """Everything committed between the two, once more. The batches' positions are not to be stored."""
        return cls(since=since, until=until)


@dataclass(frozen=True, slots=True)
class Walk:
    """What is to be read, in order, and how a position on the way and at the end is written down."""

    commits: Sequence[Listed]
    known: tuple[str, ...]
    goal: tuple[str, ...]


class Piece(NamedTuple):
    """A batch before its position is known."""

    commits: Sequence[GitCommit]
    diffs: Sequence[Diff]
    spool: Spool | None


@asynccontextmanager
async def git_batches(
    repository: GitRepository, start: GitStart, options: GitOptions
) -> AsyncIterator[AsyncIterator[Batch[GitCommit]]]:
    """Batches by (committed date, name); the next one is read while one is being stored."""
    send, receive = anyio.create_memory_object_stream[Batch[GitCommit]](0)
    with unwrapped(), send, receive:
        async with anyio.create_task_group() as group:
            group.start_soon(_Reading(repository, start, options, send).run)
            try:
                yield receive
            finally:
                group.cancel_scope.cancel()


class _Reading:
    def __init__(
        self,
        repository: GitRepository,
        start: GitStart,
        options: GitOptions,
        send: MemoryObjectSendStream[Batch[GitCommit]],
    ) -> None:
        self._repository = repository
        self._start = start
        self._options = options
        self._send = send
        self._watermark = start.watermark
        self._spools: set[Spool] = set()

    async def run(self) -> None:
        with self._send, self._unsent():
            walk = await self._unfinished()
            heads = tuple(await self._repository.heads())
            if walk is not None:
                await self._go(walk, last=False)
            known = walk.goal if walk else await self._known()
            await self._go(await self._towards(heads, known, first=walk is None), last=True)

    @contextmanager
    def _unsent(self) -> Iterator[None]:
        try:
            yield
        finally:
            for spool in self._spools:
                spool.close()

    async def _known(self) -> tuple[str, ...]:
        return tuple(await self._repository.present(self._start.known or ()))

    async def _unfinished(self) -> Walk | None:
        """The rest of the walk that the position tells of, if the mirror still has all of its goal."""
        start = self._start
        if not start.goal or start.at is None:
            return None
        if len(await self._repository.present(start.goal)) < len(start.goal):
            return None
        known = await self._known()
        behind = listed(start.at[0], start.at[1].encode())
        commits = sorted(await self._repository.listing(start.goal, known))
        rest = [commit for commit in commits if commit > behind]
        return Walk(await self._with_overlap(rest, known), known, start.goal)

    async def _towards(self, heads: tuple[str, ...], known: tuple[str, ...], *, first: bool) -> Walk:
        commits = sorted(await self._repository.listing(heads, known))
        start = self._start
        if start.known is None:  # nothing is known by name: dates are all there is
            since = start.since or start.watermark
            inside = [commit for commit in commits if _within(commit, since, start.until)]
            before = commits[: commits.index(inside[0])] if inside else commits
            again = before[-start.overlap :] if start.overlap and since and not start.since else []
            return Walk([*again, *inside], known, heads)
        return Walk(await self._with_overlap(commits, known) if first else commits, known, heads)

    async def _with_overlap(self, commits: list[Listed], known: Sequence[str]) -> list[Listed]:
        if not self._start.overlap:
            return commits
        return sorted({*commits, *await self._repository.listing(known, most=self._start.overlap)})

    async def _go(self, walk: Walk, *, last: bool) -> None:
        arrived = {"known": list(walk.goal), "goal": [], "at": None}
        total, done = len(walk.commits), 0
        slices = self._slices(walk)
        async with in_order(slices, self._ahead(), weigh=_weight, room=FACTS_AHEAD) as pieces:
            async for piece in pieces:
                done += len(piece.commits)
                position = _on_the_way(walk, walk.commits[done - 1]) if done < total else arrived
                await self._hand_on(piece, position, has_more=done < total or not last)
        if last and not total:
            await self._hand_on(Piece((), (), None), arrived, has_more=False)

    def _ahead(self) -> int:
        """As many programs as processors: unlike svn, git does not wait for anybody."""
        return max(1, min(self._options.parallelism, os.cpu_count() or 1))

    def _slices(self, walk: Walk) -> Iterator[Job[Piece]]:
        """With diffs a slice is a batch; without, it is some of them."""
        batch = self._options.batch_size
        size = batch if self._options.diffs else _slice_size(len(walk.commits), batch, self._ahead())
        for at in range(0, len(walk.commits), size):
            yield partial(self._slice, walk.commits[at : at + size])

    async def _slice(self, commits: Sequence[Listed], take: Callable[[Piece], Awaitable[None]]) -> None:
        held: list[GitCommit] = []
        size = self._options.batch_size

        async def collect(found: Sequence[GitCommit]) -> None:
            held.extend(found)
            while len(held) >= size:
                await take(await self._piece(held[:size]))
                del held[:size]

        await self._repository.commits([sha_of(commit) for commit in commits], self._options, collect)
        if held:
            await take(await self._piece(held))

    async def _piece(self, commits: Sequence[GitCommit]) -> Piece:
        if not self._options.diffs:
            return Piece(commits, (), None)
        spool = Spool(self._repository.scratch, self._options.diff_limit_bytes)
        self._spools.add(spool)
        return Piece(commits, await self._repository.diffs(commits, self._options, spool), spool)

    async def _hand_on(self, piece: Piece, position: dict[str, Any], *, has_more: bool) -> None:
        dates = [date for date in (self._watermark, *(commit.ts for commit in piece.commits)) if date]
        self._watermark = max(dates, default=None)
        position["watermark"] = self._watermark.isoformat() if self._watermark else None
        mark = self._watermark
        await self._send.send(Batch(piece.commits, piece.diffs, mark, position, has_more, piece.spool))
        if piece.spool is not None:  # now the taker's to close
            self._spools.discard(piece.spool)


def _weight(piece: Piece) -> int:
    return len(piece.commits) + sum(len(commit.files) for commit in piece.commits)


def _slice_size(commits: int, batch: int, ahead: int) -> int:
    """Whole batches, about alike, so that no program works alone at the end."""
    rounds = max(1, math.ceil(commits / (SLICE * ahead)))
    return batch * max(1, math.ceil(commits / (rounds * ahead * batch)))


def _on_the_way(walk: Walk, at: Listed) -> dict[str, Any]:
    return {"known": list(walk.known), "goal": list(walk.goal), "at": [date_of(at), sha_of(at)]}


def _within(commit: Listed, since: datetime | None, until: datetime | None) -> bool:
    date = date_of(commit)
    return (since is None or date >= _seconds(since)) and (until is None or date <= _seconds(until))


def _seconds(instant: datetime) -> int:
    return int(instant.astimezone(UTC).timestamp())
