"""Reading a mirror: its branches, lists of commits, their facts and their diffs. Nothing in it is changed.

Facts and diffs of a merge are those against its first parent, which is what it brought to its branch. Diffs
are made without renames, configuration, filters and colours, so that they are the same bytes every time; of
a binary file they say only that it differs. Many commits go through one program.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from actors.scm.backoff import Trouble
from actors.scm.diffs import Diff, Ministat, Spool
from actors.scm.git_diffs import DiffSplitter
from actors.scm.git_log import FACTS, FORMAT, STATS, BadGitLog, GitLogParser
from actors.scm.process import CommandNotStarted, Program, Programs, Stalled
from actors.scm.records import GitCommit, SourceFailed
from supervisor.errors import TenureError

__all__ = ["BrokenMirror", "GitOptions", "GitRepository", "Listed", "date_of", "git_failed", "sha_of"]

MAX_HEADS: Final = 10_000
HEADS_BYTES: Final = 64 << 20
NO_WALK: Final = ("log", "--no-walk=unsorted", "--root", "--diff-merges=first-parent")
PATCH: Final = (
    "--patch", "--full-index", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv", "--unified=3",
    "--inter-hunk-context=0", "--diff-algorithm=myers", "--src-prefix=a/", "--dst-prefix=b/",
    "--submodule=short", "--no-notes", "--no-show-signature", "--format=%H",
)  # fmt: skip

Listed = bytes
"""A commit of a listing: eight bytes of its date, twenty of its name; sorts by (date, name)."""

TakeCommits = Callable[[Sequence[GitCommit]], Awaitable[None]]


class BrokenMirror(TenureError):
    """git cannot read its mirror: {what}"""


def git_failed(trouble: Trouble, what: str) -> SourceFailed:
    return SourceFailed(source="git", trouble=trouble, what=what)


@dataclass(frozen=True, slots=True)
class GitOptions:
    batch_size: int = 100
    fetch_stats: bool = True
    bulk_lines: int = 1000
    diffs: bool = True
    diff_limit_bytes: int = 10 << 20
    diff_seconds: float = 120.0
    parallelism: int = 4


class GitRepository:
    def __init__(self, programs: Programs, path: Path, env: dict[str, str]) -> None:
        self._programs = programs
        self._path = path
        self._env = env

    @property
    def scratch(self) -> Path:
        return self._programs.scratch

    async def heads(self) -> list[str]:
        """The commits that branches point at, each once."""
        async with self._git("for-each-ref", "--format=%(objectname)", "refs/heads") as program:
            answer = await program.read(HEADS_BYTES)
            await self._check(program)
        heads = sorted(set(answer.decode("ascii").split()))
        if len(heads) > MAX_HEADS:
            raise git_failed(Trouble.BAD_CONFIG, f"it has {len(heads)} branches; {MAX_HEADS} can be followed")
        return heads

    async def present(self, commits: Sequence[str]) -> list[str]:
        """Those of them that the mirror has."""
        if not commits:
            return []
        async with self._git("rev-list", "--no-walk=unsorted", "--ignore-missing", *commits, "--") as program:
            answer = await program.read(HEADS_BYTES)
            await self._check(program)
        return answer.decode("ascii").split()

    async def listing(
        self, of: Sequence[str], without: Sequence[str] = (), most: int | None = None
    ) -> list[Listed]:
        """What can be reached from `of` and not from `without`, the newest `most` of it."""
        if not of:
            return []
        bound = () if most is None else (f"--max-count={most}",)
        rest = ("--not", *without) if without else ()
        found: list[Listed] = []
        carry = b""
        async with self._git("rev-list", "--timestamp", *bound, *of, *rest, "--") as program:
            async for chunk in program:
                *lines, carry = (carry + chunk).split(b"\n")
                found += [listed(int(line[:-41]), line[-40:]) for line in lines]
            await self._check(program)
        return found

    async def commits(self, shas: Sequence[str], options: GitOptions, take: TakeCommits) -> None:
        """Hand on the facts of these commits, in their order, as git comes to them."""
        stats = STATS if options.fetch_stats else ()
        parser = GitLogParser(stats=options.fetch_stats, bulk_lines=options.bulk_lines)
        expected = iter(shas)

        async def hand_on(found: Sequence[GitCommit]) -> None:
            if any(commit.sha != next(expected, None) for commit in found):
                raise BadGitLog("commits that were not asked for")
            if found:
                await take(found)

        async with self._git(*NO_WALK, *FACTS, *stats, f"--format={FORMAT}", *shas, "--") as program:
            try:
                async for chunk in program:
                    await hand_on(parser.feed(chunk))
                await self._check(program)
                await hand_on(parser.close())
            except BadGitLog as error:
                await self._check(program)
                raise BrokenMirror(what=str(error)) from None
        if next(expected, None) is not None:
            raise BrokenMirror(what="commits are missing from its log")

    async def diffs(self, commits: Sequence[GitCommit], options: GitOptions, spool: Spool) -> list[Diff]:
        """The diffs of these commits. Behind one that is too large or too slow git is started once more."""
        done: list[Diff] = []
        while len(done) < len(commits):
            done += await self._some_diffs(commits[len(done) :], options, spool)
        return done

    async def _some_diffs(
        self, commits: Sequence[GitCommit], options: GitOptions, spool: Spool
    ) -> list[Diff]:
        stats = {one.sha: Ministat(one.file_count, 0, one.additions, one.deletions) for one in commits}
        splitter = DiffSplitter(spool, stats)
        with anyio.move_on_after(options.diff_seconds) as patience:
            async with self._git(*NO_WALK, *PATCH, *stats, "--") as program:
                async for chunk in program:
                    await to_thread.run_sync(splitter.feed, chunk)
                    if splitter.too_large:
                        return splitter.cut_off()
                await self._check(program)
                try:
                    return splitter.close()
                except BadGitLog as error:
                    raise BrokenMirror(what=str(error)) from None
        if not patience.cancelled_caught:
            raise BrokenMirror(what="its diffs have no end")
        return splitter.cut_off(f"diff_timeout:{options.diff_seconds:g}")

    @asynccontextmanager
    async def _git(self, *arguments: str) -> AsyncIterator[Program]:
        try:
            async with self._programs.run(
                ["git", f"--git-dir={self._path}", *arguments], self._env
            ) as program:
                yield program
        except Stalled as stall:
            raise git_failed(Trouble.TIMEOUT, str(stall)) from None
        except CommandNotStarted as refusal:
            raise git_failed(Trouble.BAD_CONFIG, str(refusal)) from None

    async def _check(self, program: Program) -> None:
        ended = await program.end()
        if ended.exit_code is None:
            raise git_failed(Trouble.TIMEOUT, f"git was ended ({ended.stopped}, signal {ended.signal})")
        if ended.exit_code:
            raise BrokenMirror(what=program.stderr.strip()[-500:] or f"exit code {ended.exit_code}")


def listed(seconds: int, sha: bytes) -> Listed:
    return min(max(seconds, 0), (1 << 63) - 1).to_bytes(8) + bytes.fromhex(sha.decode("ascii"))


def date_of(commit: Listed) -> int:
    return int.from_bytes(commit[:8])


def sha_of(commit: Listed) -> str:
    return commit[8:].hex()
