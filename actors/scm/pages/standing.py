"""Repositories and their sources as a page shows them, out of rows. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from supervisor.store import Record
from supervisor.stored_json import readable

KINDS: Final[Mapping[str, str]] = {
    "pending": "PENDING",
    "running": "RUNNING",
    "retrying": "warning",
    "completed": "SUCCEEDED",
    "failed": "FAILED",
    "exhausted": "FAILED",
    "cancelled": "CANCELED",
    "disabled": "gone",
}
"""The console's states, by those of the tables."""

Row: TypeAlias = Record | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """One way into a repository. `lag_seconds` is None as long as nobody knows it."""

    row: Row
    stats: Mapping[str, Any]
    error: Mapping[str, Any]
    cursor: str
    when: str
    lag_seconds: float | None
    is_late: bool

    @property
    def is_open(self) -> bool:
        return self.row["run_status"] in ("pending", "running", "retrying")


@dataclass(frozen=True, slots=True)
class Repository:
    row: Row
    kind: str
    config: Mapping[str, Any]
    sources: Sequence[Source]


def repositories(rows: Iterable[Row], metrics: Iterable[Row]) -> list[Repository]:
    """From rows of `see_repositories`, one a source, in their order, and of `read_scm_metrics`."""
    known = {(one["repo_id"], one["source_type"]): one for one in metrics}
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["repo_id"], []).append(row)
    return [_repository(of_one, known) for of_one in found.values()]


def _repository(rows: Sequence[Row], metrics: Mapping[tuple[int, str], Row]) -> Repository:
    config = object_of(rows[0]["config_json"])
    sources = [_source(row, metrics) for row in rows if row["source_type"] is not None]
    return Repository(rows[0], "gitlab" if "project_id" in config else rows[0]["repo_type"], config, sources)


def _source(row: Row, metrics: Mapping[tuple[int, str], Row]) -> Source:
    figures = metrics.get((row["repo_id"], row["source_type"]))
    return Source(
        row,
        object_of(row["stats_json"]),
        object_of(row["error_json"]),
        position(row["cursor"]),
        _when(row["cron_expr"], object_of(row["task_json"])),
        figures["lag_seconds"] if figures else None,
        bool(figures and figures["is_late"]),
    )


def object_of(text: str | None) -> Mapping[str, Any]:
    """A JSON object; anything else is none."""
    value = readable(text) if text else None
    return value if isinstance(value, dict) else {}


def position(text: str | None) -> str:
    """Both forms that a cursor was ever written in."""
    cursor = object_of(text)
    found = next(
        (cursor[name] for name in ("watermark", "last_rev", "last_commit_ts") if name in cursor), None
    )
    return "" if found is None else str(found)


def span(run: Row) -> str:
    """From which mark a run read, and to which."""
    begin, *reached = (
        None if run[name] is None else readable(run[name])
        for name in ("watermark_start", "watermark_end", "watermark")
    )
    end = next((mark for mark in reached if mark is not None), None)
    if end is None:
        return "" if begin is None else f"from {begin}"
    return f"{'the beginning' if begin is None else begin} to {end}"


def _when(cron: str | None, config: Mapping[str, Any]) -> str:
    if cron:
        return cron
    return f"every {config.get('interval_seconds', 300)} s" if config.get("auto") else "by hand"
