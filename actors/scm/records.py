"""What the readers of svn and git hand on: facts, diffs, and how far they have come.

A batch is complete in itself: when its records, its diffs and its cursor are stored in one transaction, the
next run goes on behind it, and a batch that was not stored is read again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from actors.scm.backoff import Trouble
from actors.scm.diffs import Bulk, Diff, Spool
from supervisor.errors import TenureError

__all__ = ["Batch", "ChangedPath", "FileChange", "GitCommit", "SourceFailed", "SvnRevision", "Unreadable"]

Record = TypeVar("Record")


class SourceFailed(TenureError):
    """{source}: {trouble}: {what}"""

    hint = (
        "permanent troubles (auth_error, repo_not_found, permission_denied, bad_config) wait for the operator"
    )

    def __init__(self, *, source: str, trouble: Trouble, what: str, retry_after: float | None = None) -> None:
        super().__init__(source=source, trouble=trouble.value, what=what.strip() or "it said nothing")
        self.trouble = trouble
        self.retry_after = retry_after


class Unreadable(NamedTuple):
    """A record, or its diff, that could not be read and is left out: what it was, and why."""

    what: str
    code: str
    message: str


class ChangedPath(NamedTuple):
    path: str
    action: str
    kind: str = ""
    copyfrom_path: str | None = None
    copyfrom_rev: int | None = None

    def as_json(self) -> dict[str, Any]:
        origin = {"copyfrom_path": self.copyfrom_path, "copyfrom_rev": self.copyfrom_rev}
        facts = {"path": self.path, "action": self.action, "kind": self.kind}
        return facts | (origin if self.copyfrom_path is not None else {})


@dataclass(frozen=True, slots=True)
class SvnRevision:
    """One revision. `paths` counts all of `changed_paths`, also those beyond the bound of the list."""

    rev: int
    author: str
    ts: datetime | None
    message: str
    changed_paths: Sequence[ChangedPath]
    paths: int
    bulk: Bulk
    cut: bool = False
    """The message or the list of paths was longer than its bound."""
    fault: str = ""
    """Why it makes no sense. What has one is left out of batches."""


class FileChange(NamedTuple):
    path: str
    action: str
    additions: int
    deletions: int
    binary: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "action": self.action,
            "additions": self.additions,
            "deletions": self.deletions,
            "binary": self.binary,
        }


@dataclass(slots=True)
class GitCommit:
    """One commit. Stats and files of a merge are those against its first parent; None where not asked for.

    Nobody changes one. It is not frozen, which would take three times as long to make.
    """

    sha: str
    parents: tuple[str, ...]
    author_name: str
    author_email: str
    committer_name: str
    committer_email: str
    authored_at: datetime | None
    committed_at: datetime | None
    message: str
    additions: int | None
    deletions: int | None
    files: Sequence[FileChange]
    file_count: int
    bulk: Bulk
    cut: bool = False

    @property
    def author_raw(self) -> str:
        return f"{self.author_name} <{self.author_email}>"

    @property
    def ts(self) -> datetime | None:
        return self.committed_at or self.authored_at

    @property
    def is_merge(self) -> bool:
        return len(self.parents) > 1

    @property
    def stats(self) -> dict[str, int] | None:
        if self.additions is None or self.deletions is None:
            return None
        total = self.additions + self.deletions
        return {"additions": self.additions, "deletions": self.deletions, "total": total}


@dataclass(frozen=True, slots=True)
class Batch(Generic[Record]):
    """Records in order, the diffs of them, and the cursor that holds when all of it is stored.

    `watermark` is for people and for comparing; `position` is what the reader is given to go on (JSON, stored
    beside the watermark in the cursor). The cursor is behind what is unreadable too: where the mode allows
    such, it is written down with the batch. Whoever takes a batch closes it, when the diffs are stored.
    """

    records: Sequence[Record]
    diffs: Sequence[Diff]
    watermark: int | datetime | None
    position: Mapping[str, Any]
    has_more: bool
    spool: Spool | None = field(default=None, repr=False, compare=False)
    unreadable: Sequence[Unreadable] = ()

    def close(self) -> None:
        if self.spool is not None:
            self.spool.close()
