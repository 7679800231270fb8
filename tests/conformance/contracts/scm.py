"""The scm domain: each open run has a task of its own."""

from collections.abc import Sequence
from typing import Final

from actors.scm.leases import of_source
from tests.conformance.contracts.contract import CREATED, Contract

SOURCES: Final = ("svn", "git", "gitlab_mr", "gitlab_review")
_TASK: Final = (
    "WITH r AS (INSERT INTO scm.repos (name, repo_type, url) "
    "SELECT 'c' || replace(u::text, '-', ''), 'git', 'https://example/' || u "
    "FROM gen_random_uuid() AS u RETURNING repo_id), "
    "t AS (INSERT INTO scm.sync_tasks (repo_id, source_type) "
    "SELECT repo_id, '{source}' FROM r RETURNING task_id, source_type) "
    "INSERT INTO scm.sync_runs (run_id, task_id, source_type, {columns}) "
    "SELECT 'c-' || gen_random_uuid(), task_id, source_type, {values} FROM t{more}"
)


def _run(source: str, columns: str, values: str, more: str = "") -> str:
    return _TASK.format(source=source, columns=columns, values=values, more=more)


def _contract(source: str, other: str) -> Contract:
    ended = "status, finished_at"
    return Contract(
        of_source(source),
        insert=_run(source, "created_at", CREATED),
        finished=_run(
            source,
            f"{ended}, claim_id",
            "'completed', now(), gen_random_uuid()",
            ", generate_series(1, $1::integer)",
        ),
        others=[
            _run(source, "status, retry_after", "'retrying', 'infinity'"),
            _run(source, ended, "'failed', now()"),
            _run(source, ended, "'cancelled', now()"),
            _run(other, "status", "'pending'"),
            _run(other, "status, worker_id", "'running', 'stale'"),
        ],
        settled={"retry": "retrying"},
        derived=frozenset({"error_json", "stats_json", "watermark_end", "updated_at", "retry_after"}),
    )


SCM: Final[Sequence[Contract]] = [
    _contract(source, other) for source, other in zip(SOURCES, SOURCES[1:] + SOURCES[:1], strict=True)
]
