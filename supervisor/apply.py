"""Jobs as a file says them, and how that differs from what there is. Pure.

    [jobs.nightly]
    domain = "command"
    cron = "30 2 * * *"
    timezone = "Europe/Berlin"
    payload = { argv = ["backup", { argument = "target" }] }
    parameters = { target = { type = "text", default = "all" } }

A job in the file is the whole truth about it: what it does not name has its default. One exception: without
`enabled`, a job stays enabled or disabled as it is, so that deploying a file does not switch on what somebody
paused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from supervisor.jobspec import (
    FIELDS,
    NAME,
    NAME_RULE,
    columns_of,
    complete,
    payload_faults,
    relation_faults,
)

Columns = Mapping[str, Any]
Unsuited = Callable[[str, Mapping[str, Any]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Difference:
    """`changed`: for each job the fields, each with what it is and what it becomes."""

    added: tuple[str, ...] = ()
    changed: Mapping[str, Mapping[str, tuple[Any, Any]]] | None = None
    removed: tuple[str, ...] = ()
    unchanged: int = 0

    @property
    def empty(self) -> bool:
        return not (self.added or self.changed or self.removed)


def read_jobs(
    document: Mapping[str, Any], unsuited: Unsuited, now: datetime
) -> tuple[dict[str, Columns], list[str]]:
    """Every job of a parsed file as columns, and everything that is wrong with the file."""
    faults = [f"unknown table {name!r}; jobs are [jobs.NAME]" for name in document if name != "jobs"]
    tables = document.get("jobs", {})
    if not isinstance(tables, Mapping):
        return {}, [*faults, "jobs must be tables: [jobs.NAME]"]
    if not tables:
        faults.append("there is no job: write [jobs.NAME]")
    jobs: dict[str, Columns] = {}
    for name, table in tables.items():
        found = list(_table_faults(name, table))
        if not found:
            jobs[name] = complete({**_defaults(table), **columns_of(table)})
            found = list(_job_faults(jobs[name], unsuited, now))
        faults += [f"{name}: {fault}" for fault in found]
    return jobs, faults


def difference(wanted: Mapping[str, Columns], existing: Mapping[str, Columns], *, prune: bool) -> Difference:
    changed = {
        name: fields
        for name, columns in sorted(wanted.items())
        if name in existing and (fields := _changes(existing[name], columns))
    }
    return Difference(
        added=tuple(sorted(wanted.keys() - existing.keys())),
        changed=changed,
        removed=tuple(sorted(existing.keys() - wanted.keys())) if prune else (),
        unchanged=len(wanted.keys() & existing.keys()) - len(changed),
    )


def _changes(was: Columns, wanted: Columns) -> dict[str, tuple[Any, Any]]:
    return {name: (was[name], value) for name, value in wanted.items() if was[name] != value}


def _defaults(table: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is not named; `concurrency` is left to the policy."""
    return {
        field.column: field.default
        for name, field in FIELDS.items()
        if name not in table and name != "enabled" and (name != "concurrency" or _unbounded(table))
    }


def _unbounded(table: Mapping[str, Any]) -> bool:
    return bool(table.get("concurrency_policy", "allow") == "allow")


def _table_faults(name: str, table: Any) -> Iterator[str]:
    if not NAME.fullmatch(name):
        yield f"cannot be a job's name: {NAME_RULE}"
    if not isinstance(table, Mapping):
        yield "must be a table: [jobs.NAME]"
        return
    for key, value in table.items():
        if key not in FIELDS:
            yield f"unknown key {key!r}; known are {', '.join(FIELDS)}"
        else:
            yield from (f"{key} {fault}" for fault in FIELDS[key].faults(value))
    if "domain" not in table:
        yield "domain is missing"
    if "cron" not in table and {"timezone", "missed", "missed_limit"} & table.keys():
        yield "timezone and missed say more about a cron, which is missing"


def _job_faults(job: Columns, unsuited: Unsuited, now: datetime) -> Iterator[str]:
    unfit = payload_faults(job["payload"])
    yield from unfit or unsuited(job["domain"], job["payload"])
    yield from relation_faults(job, now)
