"""What the readers found, as the ledger takes it. Pure.

PostgreSQL stores neither NUL nor lone surrogates: both are replaced, wherever they stand.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from actors.scm.diffs import DIFF_BYTES, Diff, bulk_by_size
from actors.scm.records import GitCommit, SvnRevision

Fact = dict[str, Any]

_UNFIT: Final = re.compile("[\x00\ud800-\udfff]")
# as JSON writes them, and the halves of signs beyond 16 bits; a fact without any is not looked through
_SUSPECT: Final = re.compile(r"\\u(0000|d[89a-f])")
NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
REPLACEMENT: Final = "\ufffd"
_encoded: Final = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
PART_BYTES: Final = 2 << 20
"""As much of a batch one call takes: the database gives a statement some seconds, however large it is."""


def clean(value: Any) -> Any:
    """The same, with nothing in it that cannot be stored."""
    if isinstance(value, str):
        return _UNFIT.sub(REPLACEMENT, value)
    if isinstance(value, Mapping):
        return {clean(name): clean(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [clean(inner) for inner in value]
    return value


def lists(some: Sequence[Fact], part_bytes: int = PART_BYTES) -> list[str]:
    """They as JSON, in lists of so many bytes, or of one fact that is larger; at least one list."""
    parts: list[list[str]] = [[]]
    size = 0
    for fact in some:
        text = _encoded(fact)
        if _SUSPECT.search(text):
            text = _encoded(clean(fact))
        if parts[-1] and size + len(text) > part_bytes:
            parts.append([])
            size = 0
        parts[-1].append(text)
        size += len(text)
    return [f"[{','.join(part)}]" for part in parts]


def svn_key(repo_id: int, rev: int) -> str:
    return f"scm/{repo_id}/svn/r{rev}.diff"


def git_key(repo_id: int, sha: str) -> str:
    return f"scm/{repo_id}/git/commits/{sha}.diff"


def svn_fact(
    record: SvnRevision, patch: Fact | None, diff: Diff | None, large_bytes: int = DIFF_BYTES
) -> Fact:
    bulk = bulk_by_size(record.bulk, diff, large_bytes)
    meta: Fact = {"changed_paths": [path.as_json() for path in record.changed_paths]}
    if record.cut:
        meta |= {"cut": True, "paths": record.paths}
    return {
        "rev": record.rev,
        "author": record.author,
        "ts": iso(record.ts),
        "message": record.message,
        "is_bulk": bulk.is_bulk,
        "bulk_reason": bulk.reason,
        "meta": meta | _degraded(diff),
        "patch": patch,
    }


def git_fact(record: GitCommit, patch: Fact | None, diff: Diff | None, large_bytes: int = DIFF_BYTES) -> Fact:
    bulk = bulk_by_size(record.bulk, diff, large_bytes)
    authored, when = record.authored_at, record.ts
    told = iso(authored)
    meta: Fact = {
        "committer_name": record.committer_name,
        "committer_email": record.committer_email,
        "authored_date": told,
        "parent_ids": list(record.parents),
        "web_url": getattr(record, "web_url", ""),
    }
    if (stats := record.stats) is not None:
        meta["stats"] = stats
    if record.files:
        meta["files"] = [file.as_json() for file in record.files]
        meta["file_count"] = record.file_count
    if record.cut:
        meta["cut"] = True
    if diff is not None:
        meta |= _degraded(diff)
    return {
        "sha": record.sha,
        "author_name": record.author_name,
        "author_email": record.author_email,
        "ts": told if told and when == authored else iso(when or NO_TIME),
        "message": record.message,
        "is_bulk": bulk.is_bulk,
        "bulk_reason": bulk.reason,
        "meta": meta,
        "patch": patch,
    }


def patch_of(key: str, diff: Diff) -> Fact:
    return {"uri": key, "sha256": diff.sha256, "size_bytes": diff.size, "meta": {}}


def _degraded(diff: Diff | None) -> Fact:
    """Why there is no diff, and what is known of it all the same."""
    if diff is None or not diff.degraded:
        return {}
    known = {} if diff.ministat is None else {"ministat": diff.ministat.as_json()}
    return {"diff": {"degraded": diff.reason, **known}}


def iso(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    in_utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return in_utc.isoformat()[: -len("+00:00")] + "Z"
