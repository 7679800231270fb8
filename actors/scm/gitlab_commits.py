"""The commits of a GitLab project as records, and their diffs.

`gitlab_batches.py` decides what is read, and in which order; here is what GitLab's answers mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from actors.scm.backoff import Trouble
from actors.scm.diffs import GIT_LINES, Bulk, Diff, DiffSink, Ministat, Spool, bulk_by_lines
from actors.scm.gitlab import GitlabClient
from actors.scm.gitlab_answer import MAX_FIELD, MAX_TEXT, BadAnswer, TooLarge, instant_or_none, mapping, text
from actors.scm.gitlab_diff import FileDiff, file_diff, gap, rendered
from actors.scm.records import GitCommit, SourceFailed

__all__ = ["CommitOptions", "GitlabCommit", "commit", "commit_diff"]

MAX_PARENTS: Final = 1000
UNAVAILABLE: Final = frozenset({Trouble.NOT_FOUND, Trouble.PERMISSION})
STUCK: Final = frozenset({Trouble.SERVER_ERROR, Trouble.TIMEOUT})
# git's own stand-in for a date that it cannot read; the ledger has no commit without a time.
NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CommitOptions:
    scratch: Path
    ref: str | None = None
    """A branch or tag; None for the project's default branch."""
    batch_size: int = 100
    window_pages: int = 10
    fetch_stats: bool = True
    bulk_lines: int = GIT_LINES
    diffs: bool = True
    diff_limit_bytes: int = 10 << 20
    parallelism: int = 4
    overlap: int = 0
    tolerant: bool = False
    """A commit that cannot be read is told of and left out; else it ends the reading."""


@dataclass(slots=True)
class GitlabCommit(GitCommit):
    web_url: str = ""

    @property
    def moment(self) -> datetime:
        return self.ts or NO_TIME

    @property
    def key(self) -> tuple[datetime, str]:
        return (self.moment, self.sha)

    def fact(self, patch: Mapping[str, Any] | None = None, degraded: Diff | None = None) -> dict[str, Any]:
        """As the ledger takes it; `patch` is where the diff is kept, `degraded` why it is not."""
        meta: dict[str, Any] = {
            "committer_name": self.committer_name,
            "committer_email": self.committer_email,
            "parent_ids": list(self.parents),
            "web_url": self.web_url,
        }
        if self.stats:
            meta["stats"] = self.stats
        if degraded:
            stat = degraded.ministat.as_json() if degraded.ministat else {}
            meta["diff"] = {"degraded": degraded.reason, **stat}
        return {
            "sha": self.sha,
            "author_name": self.author_name,
            "author_email": self.author_email,
            "ts": self.moment.isoformat(),
            "message": self.message,
            "is_bulk": self.bulk.is_bulk,
            "bulk_reason": self.bulk.reason,
            "meta": meta,
            "patch": patch,
        }


def commit(answer: Any, bulk_lines: int = GIT_LINES) -> GitlabCommit:
    given = mapping(answer, "a commit")
    parents = given.get("parent_ids")
    if not isinstance(parents, list):
        raise BadAnswer("a commit without its parents")
    message = given.get("message")
    additions, deletions = _stats(given.get("stats"))
    known = additions is not None and deletions is not None
    return GitlabCommit(
        sha=sha(given.get("id")),
        parents=tuple(sha(one) for one in parents[:MAX_PARENTS]),
        author_name=text(given.get("author_name")),
        author_email=text(given.get("author_email")),
        committer_name=text(given.get("committer_name")),
        committer_email=text(given.get("committer_email")),
        authored_at=instant_or_none(given.get("authored_date")),
        committed_at=instant_or_none(given.get("committed_date")),
        message=text(message, MAX_TEXT) if message is not None else text(given.get("title")),
        additions=additions,
        deletions=deletions,
        files=(),
        file_count=0,
        bulk=bulk_by_lines(additions or 0, deletions or 0, bulk_lines) if known else Bulk(),
        web_url=text(given.get("web_url"), MAX_FIELD),
    )


def sha(value: Any) -> str:
    """40 or 64 hexadecimal digits; it becomes part of paths and keys."""
    if isinstance(value, str) and len(value) in (40, 64) and not set(value) - set("0123456789abcdef"):
        return value
    raise BadAnswer("a commit whose id is none")


def _stats(value: Any) -> tuple[int | None, int | None]:
    if not isinstance(value, dict):
        return None, None
    pair = [value.get("additions"), value.get("deletions")]
    if any(not isinstance(one, int) or isinstance(one, bool) or not 0 <= one < 1 << 40 for one in pair):
        return None, None
    return pair[0], pair[1]


async def commit_diff(gitlab: GitlabClient, record: GitlabCommit, spool: Spool) -> Diff:
    """What the commit changed against its first parent, in the spool, or why it is not there."""
    found: list[FileDiff] = []
    held = 0
    reason, too_large = None, False
    try:
        async for page in gitlab.pages(f"repository/commits/{record.sha}/diff"):
            files = [file_diff(one) for one in page]
            found += files
            held += sum(len(one.hunks) for one in files)
            if held > spool.limit_bytes:
                break
    except TooLarge:
        too_large = True
    except BadAnswer as failure:
        reason = f"diff_unavailable:{failure.code}"
    except SourceFailed as failure:
        if failure.trouble not in UNAVAILABLE and not await _is_alone(gitlab, record, failure):
            raise
        reason = f"diff_unavailable:{failure.trouble.value}"
    sink = spool.sink(record.sha, Ministat(len(found), 0, record.additions, record.deletions))
    if too_large:
        return sink.overflow()
    if reason:
        return sink.degraded(reason)
    known = record.additions is not None and record.deletions is not None
    stats = (record.additions or 0, record.deletions or 0) if known else None
    return await to_thread.run_sync(_spooled, sink, found, stats)


async def _is_alone(gitlab: GitlabClient, record: GitlabCommit, failure: SourceFailed) -> bool:
    """Whether the server fails at this diff alone. At huge ones it does, for ever; the sync goes on then."""
    if failure.trouble not in STUCK:
        return False
    try:
        await gitlab.get(f"repository/commits/{record.sha}")
    except SourceFailed:
        return False
    return True


def _spooled(sink: DiffSink, files: list[FileDiff], stats: tuple[int, int] | None) -> Diff:
    for piece in rendered(files):
        sink.write(piece)
        if sink.too_large:
            return sink.done()
    lacking = gap(files, stats)
    return sink.degraded(lacking) if lacking else sink.done()
