"""What comes in and what goes out, with their bounds."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from supervisor.store import Record
from supervisor.stored_json import readable

BIGINT: Final = 2**63 - 1
NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"

RepoName = Annotated[str, Path(pattern=NAME, max_length=63, description="The name of a repository.")]
OfRepo = Annotated[str | None, Query(pattern=NAME, max_length=63, description="Of this repository alone.")]
RunId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_:.-]{1,50}$")]
SourceType = Literal["svn", "git", "gitlab_mr", "gitlab_review"]
Status = Literal["pending", "running", "completed", "failed", "retrying", "exhausted", "cancelled"]
EvidenceUri = Annotated[
    str,
    Query(
        min_length=1,
        max_length=4096,
        description="`memory://patch_blobs/...` or `memory://attachments/...`, as the ledger has it.",
    ),
]


class Repository(BaseModel):
    """Where it lies, and how much of it is in the ledger where one is asked for. It holds no secret: `config`
    names the variable that has the token."""

    repo_id: int
    name: str
    repo_type: str
    url: str
    project_key: str
    default_branch: str | None
    config: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    svn_revisions: int | None = None
    git_commits: int | None = None
    mrs: int | None = None
    patch_blobs: int | None = None


class SyncTask(BaseModel):
    """`cursor` is how far it was read, `lag_seconds` how far that is behind what the source has; null where
    nothing was read yet."""

    repo: str
    source_type: str
    status: str
    priority: int
    cron_expr: str | None
    config: dict[str, Any]
    consecutive_failures: int
    next_run_at: datetime | None
    cursor: dict[str, Any] | None
    head_watermark: Any
    head_ts: datetime | None
    lag_seconds: float | None
    cursor_age_seconds: float | None
    is_pending: bool | None
    is_late: bool | None
    error_rate: float | None
    last_run_id: str | None
    last_run_status: str | None


class SyncRun(BaseModel):
    """One sync, with its figures; what was passed over with best_effort stands in `error.failures`."""

    run_id: str
    repo: str
    source_type: str
    status: str
    mode: str
    started_at: datetime
    finished_at: datetime | None
    watermark_start: Any
    watermark_end: Any
    stats: dict[str, Any]
    error: dict[str, Any] | None
    worker_id: str | None
    attempts: int
    requested_by: str
    created_at: datetime


class EvidenceListed(BaseModel):
    """The diff of one revision or commit, `record`."""

    evidence_uri: str
    record: str
    key: str
    sha256: str
    size_bytes: int
    created_at: datetime


class EvidenceFacts(BaseModel):
    """What the ledger says of it; nothing of the content was read."""

    evidence_uri: str
    key: str
    sha256: str
    size_bytes: int


class Verified(EvidenceFacts):
    """`sound`: the content was read, and has the size and the SHA-256 of the ledger. Else `code` and `detail`
    say what is wrong with it."""

    sound: bool
    code: str | None = Field(examples=["CHECKSUM_MISMATCH", "NOT_FOUND"])
    detail: str | None


class Attach(BaseModel):
    """`uri` is the key of an artifact, or its address in our own store, of which the key is kept."""

    model_config = ConfigDict(extra="forbid")

    kind: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.-]{0,99}$")] = Field(examples=["log"])
    uri: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        examples=["attachments/7/1.log"]
    )
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        None, description="Where given, the content has it, or nothing is attached."
    )


def shown(row: Record | Mapping[str, Any], *json_fields: str) -> dict[str, Any]:
    """A row with its JSON as JSON, and names without `_json`."""
    facts = dict(row)
    for field in json_fields:
        value = facts.pop(field)
        facts[field.removesuffix("_json")] = None if value is None else readable(value)
    return facts
