"""Are blobs, refs and events as they must be? Five checks, each a question whose answer is no row.

One content in several positions of a role is allowed, so that check only informs, unless the setting
media_one_ref_per_blob says that a content stands there once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from supervisor.doctor import Finding
from supervisor.errors import OutcomeUnknown
from supervisor.store import Store

Result = Literal["pass", "fail", "info", "unknown"]
CHECK_SECONDS: Final = 30.0
SAMPLE: Final = 5
PRINCIPAL: Final = "token:"

# name, query, what a row means, what to do
CHECKS: Final[Sequence[tuple[str, str, str, str]]] = (
    ("slots", "find_slot_conflicts", "slots with more than one active ref",
     "the index media_refs_one_active_in_slot is gone or broken: end the surplus refs, then reindex"),
    ("repeated blobs", "find_repeated_blobs", "contents that stand several times in one role of an entity",
     "detach the surplus refs, or set media_one_ref_per_blob to false"),
    ("orphan refs", "find_orphan_refs", "refs without a blob",
     "somebody wrote past the functions: restore the rows of these blobs"),
    ("order of events", "find_disordered_requests", "requests whose events do not tell a story",
     "somebody wrote past the functions: `tenure media replay` shows what there is"),
    ("complete requests", "find_incomplete_requests", "requests without a decision or a result",
     "somebody wrote past the functions: `tenure media replay` shows what there is"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """`info`: rows that are allowed; `unknown`: not answered in time. `rows` are at most 50."""

    name: str
    result: Result
    rows: int
    meaning: str
    advice: str
    sample: Sequence[dict[str, Any]]


async def check_health(store: Store) -> list[Check]:
    once_only = bool(await store.value("read_media_policy"))
    checks = []
    for name, query, meaning, advice in CHECKS:
        allowed = query == "find_repeated_blobs" and not once_only
        try:
            rows = await store.rows(query, timeout=CHECK_SECONDS)
        except OutcomeUnknown:
            checks.append(Check(name, "unknown", 0, meaning, "", ()))
            continue
        result: Result = "pass" if not rows else "info" if allowed else "fail"
        checks.append(Check(name, result, len(rows), meaning, advice, [dict(row) for row in rows[:SAMPLE]]))
    return checks


def is_healthy(checks: Sequence[Check]) -> bool:
    return all(check.result != "fail" for check in checks)


async def findings(store: Store) -> list[Finding]:
    """For `tenure doctor`."""
    found = await _writers(store)
    for check in await check_health(store):
        name = f"media: {check.name}"
        if check.result == "fail":
            found.append(Finding(name, "fail", f"{check.meaning}: {check.rows}", check.advice))
        elif check.result == "unknown":
            found.append(Finding(name, "warn", "not answered in time", "ask again when there is less to do"))
        else:
            told = f"{check.rows} (allowed)" if check.result == "info" else "holds"
            found.append(Finding(name, "ok", told))
    return found


async def _writers(store: Store) -> list[Finding]:
    """Find workspaces with names only: releases before let anybody write who said such a name."""
    try:
        rows = await store.rows("list_media_writers", timeout=CHECK_SECONDS)
    except OutcomeUnknown:
        return [Finding("media: writers", "warn", "not answered in time", "ask again later")]
    closed = [row["workspace_id"] for row in rows if not _names_token(row["writers"])]
    if not closed:
        return []
    told = f"only role admin writes to {', '.join(closed[:SAMPLE])}: no token is named"
    return [Finding("media: writers", "warn", told, "`tenure media writers WORKSPACE token:NAME NAME ...`")]


def _names_token(writers: Sequence[str]) -> bool:
    return any(name.startswith(PRINCIPAL) for name in writers)
