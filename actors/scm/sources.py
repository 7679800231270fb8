"""The four sources behind one form: where a run begins, its batches, and what becomes of a record.

A source is opened for one run, with what the database knows of the repository and the task. It yields batches
(records.py) and says how they are written down: by which query, with which facts, under which key a diff is
kept. Positions are the sources' own memory, stored beside the watermark; a run that reads a range again moves
neither.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from actors.scm import facts
from actors.scm.address import AddressRules, HostUnknown, Pinned, UnsafeAddress, parse, resolve
from actors.scm.backoff import Trouble
from actors.scm.config import Sync
from actors.scm.diffs import Diff
from actors.scm.facts import Fact
from actors.scm.git import GitMirror
from actors.scm.git_batches import GitStart, git_batches
from actors.scm.git_repository import GitOptions
from actors.scm.gitlab import GitlabClient, GitlabOptions, open_gitlab
from actors.scm.gitlab_batches import CommitStart, gitlab_commits
from actors.scm.gitlab_commits import CommitOptions
from actors.scm.gitlab_mr import ChangesStart, gitlab_mrs
from actors.scm.gitlab_review import ReviewStart, gitlab_reviews
from actors.scm.process import Programs
from actors.scm.records import Batch, SourceFailed
from actors.scm.surroundings import Secret, secret_from
from actors.scm.svn import SvnOptions, SvnSource
from actors.scm.svn_batches import SvnStart, svn_batches

Batches = AsyncIterator[Batch[Any]]

_PARALLEL_DIFFS: Final = 4


@dataclass(frozen=True, slots=True)
class Task:
    """What `begin_sync` told, read and judged."""

    repo_id: int
    repo: str
    url: str
    ref: str | None
    source_type: str
    project_id: int | None
    token_env: str | None
    user: str
    config: Sync
    overlap: int
    watermark: Any
    state: Mapping[str, Any] | None
    backfill: bool
    range: Mapping[str, Any]

    @property
    def rules(self) -> AddressRules:
        config = self.config
        return AddressRules(config.allow_private_addresses, config.allow_http, config.allow_local_files)

    @property
    def tolerant(self) -> bool:
        """A record that is wrong is written down and passed over; else it ends the sync."""
        return self.config.mode == "best_effort"

    @property
    def secret(self) -> Secret | None:
        return secret_from(self.token_env, self.user) if self.token_env else None


@dataclass(frozen=True, slots=True)
class Source:
    """How the records of one source are read and written down."""

    query: str
    open: Callable[[Task, Programs, Path], AbstractAsyncContextManager[Batches]]
    fact: Callable[[Any, Fact | None, Diff | None, int], Fact]
    """From a record, its stored diff, how that was read, and from how many bytes on a diff makes it bulk."""
    name: Callable[[Any], str] = str
    """By what a diff says of which record it is."""
    key: Callable[[int, Any], str] | None = None
    """Where its diff is kept; None: it has none."""


@asynccontextmanager
async def _open_svn(task: Task, programs: Programs, _mirrors: Path) -> AsyncIterator[Batches]:
    source = SvnSource(programs, await _pinned(task, "svn"), secret=task.secret)
    config = task.config
    options = SvnOptions(
        batch_size=config.batch_size,
        log_limit=config.svn.log_limit,
        bulk_threshold=config.bulk_threshold,
        diffs=config.diff_fetch_enabled,
        diff_limit_bytes=config.diff_limit_bytes,
        parallelism=_PARALLEL_DIFFS,
        tolerant=task.tolerant,
    )
    async with svn_batches(source, _svn_start(task), options) as batches:
        yield batches


def _svn_start(task: Task) -> SvnStart:
    if task.backfill:
        return SvnStart(first=max(1, int(task.range.get("from") or 1)), last=_integer(task.range.get("to")))
    position = task.state
    if task.watermark is not None and (not position or position.get("rev") != task.watermark):
        position = {"rev": task.watermark, "uuid": (position or {}).get("uuid")}
    return SvnStart.after(position, task.overlap)


@asynccontextmanager
async def _open_git(task: Task, programs: Programs, mirrors: Path) -> AsyncIterator[Batches]:
    config = task.config
    if task.project_id is not None:
        async with _gitlab(task) as gitlab, aclosing(_gitlab_commits(task, gitlab, programs)) as batches:
            yield batches
        return
    mirror = GitMirror(
        programs,
        mirrors,
        task.repo_id,
        await _pinned(task, "git"),
        secret=task.secret,
        lock_seconds=config.lock_timeout,
    )
    options = GitOptions(
        batch_size=config.batch_size,
        fetch_stats=config.git.fetch_stats,
        bulk_lines=config.git.bulk_lines,
        diffs=config.diff_fetch_enabled,
        diff_limit_bytes=config.diff_limit_bytes,
        parallelism=_PARALLEL_DIFFS,
    )
    async with mirror.open() as repository, git_batches(repository, _git_start(task), options) as batches:
        yield batches


def _git_start(task: Task) -> GitStart:
    if task.backfill:
        return GitStart.backfill(_moment(task.range.get("from")), _moment(task.range.get("to")))
    position = task.state or ({"watermark": task.watermark} if task.watermark else None)
    return GitStart.of(position, task.overlap)


def _gitlab(task: Task) -> AbstractAsyncContextManager[GitlabClient]:
    limits = task.config.gitlab
    options = GitlabOptions(per_page=limits.per_page, rate_limit_rpm=limits.rate_limit_rpm)
    return open_gitlab(task.url, task.project_id or 0, task.secret, task.rules, options)


def _gitlab_commits(task: Task, gitlab: GitlabClient, programs: Programs) -> Any:
    config = task.config
    options = CommitOptions(
        scratch=programs.scratch,
        ref=task.ref,
        batch_size=config.batch_size,
        fetch_stats=config.git.fetch_stats,
        bulk_lines=config.git.bulk_lines,
        diffs=config.diff_fetch_enabled,
        diff_limit_bytes=config.diff_limit_bytes,
        parallelism=_PARALLEL_DIFFS,
        overlap=task.overlap,
        tolerant=task.tolerant,
    )
    since, until = _moment(task.range.get("from")), _moment(task.range.get("to"))
    start = (
        CommitStart(since=since, until=until)
        if task.backfill
        else CommitStart(_moment(task.watermark), task.state)
    )
    return gitlab_commits(gitlab, start, options)


@asynccontextmanager
async def _open_mrs(task: Task, _programs: Programs, _mirrors: Path) -> AsyncIterator[Batches]:
    start = ChangesStart(_moment(task.watermark), overlap=task.overlap, tolerant=task.tolerant)
    if task.backfill:
        since, until = _moment(task.range.get("from")), _moment(task.range.get("to"))
        start = ChangesStart(since, until, tolerant=task.tolerant)
    size = task.config.batch_size
    async with _gitlab(task) as gitlab, aclosing(gitlab_mrs(gitlab, start, size)) as batches:  # type: ignore[type-var]
        yield batches


@asynccontextmanager
async def _open_reviews(task: Task, _programs: Programs, _mirrors: Path) -> AsyncIterator[Batches]:
    start = ReviewStart(_moment(task.watermark), task.state, overlap=task.overlap, tolerant=task.tolerant)
    if task.backfill:
        since, until = _moment(task.range.get("from")), _moment(task.range.get("to"))
        start = ReviewStart(since, before=until, tolerant=task.tolerant)
    size = task.config.batch_size
    async with _gitlab(task) as gitlab, aclosing(gitlab_reviews(gitlab, start, size)) as batches:  # type: ignore[type-var]
        yield batches


async def _pinned(task: Task, kind: Any) -> Pinned:
    try:
        return await resolve(parse(task.url, kind, task.rules), task.rules)
    except UnsafeAddress as refusal:
        raise SourceFailed(source=task.repo, trouble=Trouble.BAD_CONFIG, what=str(refusal)) from None
    except HostUnknown as unknown:
        raise SourceFailed(source=task.repo, trouble=Trouble.NETWORK, what=str(unknown)) from None


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    moment = datetime.fromisoformat(str(value))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _integer(value: Any) -> int | None:
    return None if value is None else int(value)


def _plain(record: Any, _patch: Fact | None, _diff: Diff | None, _large_bytes: int) -> Fact:
    fact: Fact = record.fact()
    return fact


SOURCES: Final[Mapping[str, Source]] = {
    "svn": Source(
        "record_svn",
        _open_svn,
        facts.svn_fact,
        name=lambda record: str(record.rev),
        key=lambda repo, record: facts.svn_key(repo, record.rev),
    ),
    "git": Source(
        "record_git",
        _open_git,
        facts.git_fact,
        name=lambda record: str(record.sha),
        key=lambda repo, record: facts.git_key(repo, record.sha),
    ),
    "gitlab_mr": Source("record_mrs", _open_mrs, _plain),
    "gitlab_review": Source("record_reviews", _open_reviews, _plain),
}
