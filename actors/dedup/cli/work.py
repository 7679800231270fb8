"""A run of this domain, followed to its end: a bar for each of its jobs on stderr, and what came of them.

Where stderr is no terminal, a line for each change instead. Whoever stops following stops nothing.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import anyio
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from supervisor.cli import output
from supervisor.cli.follow import follow
from supervisor.clock import boottime
from supervisor.errors import TenureError
from supervisor.store import Store

LOOK_SECONDS: Final = 0.4
NOBODY_SECONDS: Final = 3.0
HEARD_SECONDS: Final = 30.0
LINE_SECONDS: Final = 10.0
ENDED: Final = frozenset({"completed", "failed", "cancelled"})
NOBODY: Final = "nobody works on this yet: start `tenure up`, or look with `tenure status`"


class Display:
    """What is shown meanwhile."""

    def __init__(self) -> None:
        self._bars: dict[Any, TaskID] = {}
        self._said: dict[Any, tuple[str, float]] = {}
        self._progress: Progress | None = None
        if sys.stderr.isatty():
            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[figures]}", markup=False),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )

    @contextmanager
    def shown(self) -> Iterator[None]:
        if self._progress is None:
            yield
            return
        with self._progress:
            yield

    def say(self, line: str) -> None:
        if self._progress is None:
            sys.stderr.write(f"{output.clean(line)}\n")
        else:
            self._progress.console.print(output.clean(line), markup=False, highlight=False)

    def update(self, jobs: Sequence[Mapping[str, Any]]) -> None:
        for job in jobs:
            if self._progress is None:
                self._say_standing(job)
            else:
                self._move_bar(self._progress, job)

    def _move_bar(self, progress: Progress, job: Mapping[str, Any]) -> None:
        share = done_share(job)
        if job["id"] not in self._bars:
            self._bars[job["id"]] = progress.add_task(title(job), total=None, figures="")
        progress.update(
            self._bars[job["id"]],
            total=None if share is None else 1.0,
            completed=share or 0.0,
            description=title(job),
            figures=figures(job),
        )

    def _say_standing(self, job: Mapping[str, Any]) -> None:
        status, at = self._said.get(job["id"], ("", 0.0))
        if status != job["status"] or boottime() - at > LINE_SECONDS:
            self._said[job["id"]] = job["status"], boottime()
            self.say(f"{title(job)}: {job['status']}, {figures(job)}")


async def follow_work(run_id: int, store: Store) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The last attempt's row, and the jobs."""
    display = Display()
    with display.shown():
        async with anyio.create_task_group() as group:
            group.start_soon(_keep_looking, run_id, display, store)
            last, _ = await follow(run_id, None, store)
            group.cancel_scope.cancel()
    jobs = [dict(row) for row in await store.rows("list_jobs_of_run", run_id)]
    return last, jobs


async def someone_works(store: Store) -> bool:
    row = await store.row("read_dedup_workforce", HEARD_SECONDS)
    return row is not None and row["has_leader"] and row["replicas"] > 0


async def _keep_looking(run_id: int, display: Display, store: Store) -> None:
    nobody_at: float | None = boottime() + NOBODY_SECONDS
    while True:
        try:
            jobs = [dict(row) for row in await store.rows("list_jobs_of_run", run_id)]
            display.update(jobs)
            if not jobs and nobody_at is not None and boottime() >= nobody_at:
                nobody_at = None
                if not await someone_works(store):
                    display.say(NOBODY)
        except TenureError:
            display.say("the database does not answer just now")
        await anyio.sleep(LOOK_SECONDS)


def title(job: Mapping[str, Any]) -> str:
    return f"{job['kind']} of {job['library'] or 'all libraries'}"


def files_done(job: Mapping[str, Any]) -> int:
    if job["kind"] == "scan":
        return job["files_seen"] or 0
    if job["status"] == "completed":
        return job["total_items"] or 0
    return job["processed_items"] or 0


def done_share(job: Mapping[str, Any]) -> float | None:
    """None: nobody knows yet how much there is."""
    if job["status"] == "completed":
        return 1.0
    whole = job["expected"] if job["kind"] == "scan" else job["total_items"]
    return min(0.99, files_done(job) / whole) if whole else None


def figures(job: Mapping[str, Any]) -> str:
    """Files, bytes, rate and errors, as far as they are known."""
    done, seconds = files_done(job), job["seconds"]
    parts = [f"{done:,} files" if job["kind"] == "scan" or not job["total_items"] else _of(done, job)]
    if job["bytes_seen"]:
        parts.append(decimal(job["bytes_seen"]))
    if seconds and done:
        parts.append(f"{done / seconds:,.0f} files/s")
    if job["error_count"]:
        parts.append(f"{job['error_count']:,} errors")
    if job["status"] == "retryable":
        parts.append(f"will be tried again: {job['error_code']}")
    return ", ".join(parts)


def _of(done: int, job: Mapping[str, Any]) -> str:
    return f"{done:,} of {job['total_items']:,} files"


def summary(job: Mapping[str, Any]) -> str:
    """One line of what came of it."""
    took = f" in {output.duration(job['seconds'])}" if job["seconds"] is not None else ""
    line = f"{title(job)} {job['status']}{took}: "
    if job["error_code"] and job["status"] != "completed":
        line += f"{job['error_code']} {job['error_message'] or ''}; "
    if job["kind"] != "scan":
        return line + {"hash": "{:,} files hashed", "thumbnail": "{:,} thumbnails"}[job["kind"]].format(
            files_done(job)
        )
    counts = (f"{job[f'files_{what}'] or 0:,} {what}" for what in ("new", "changed", "moved", "missing"))
    return line + (
        f"{files_done(job):,} files, {decimal(job['bytes_seen'] or 0)}; "
        f"{', '.join(counts)}, {job['error_count'] or 0:,} errors"
    )


def plain(job: Mapping[str, Any]) -> dict[str, Any]:
    """For scripts."""
    shown: dict[str, Any] = {
        name: job[name]
        for name in ("id", "kind", "library", "status", "error_code", "error_message", "seconds")
    }
    shown["files"] = files_done(job)
    if job["kind"] == "scan":
        shown |= {what: job[f"files_{what}"] or 0 for what in ("new", "changed", "moved", "missing")}
        shown |= {"bytes": job["bytes_seen"] or 0, "errors": job["error_count"] or 0}
    return shown
