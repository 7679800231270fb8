"""A sync, followed to its end: a line of its figures on stderr, and the row that it ended as.

A run that was lost with its worker has a successor, made by the leader: that one is followed. Whoever stops
following stops nothing.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final

import anyio

from actors.scm.cli.inputs import plain
from supervisor.cli import output
from supervisor.clock import boottime
from supervisor.errors import DatabaseUnreachable, NotFound, OutcomeUnknown
from supervisor.store import Store

LOOK_SECONDS: Final = 0.5
LINE_SECONDS: Final = 10.0
NOBODY_SECONDS: Final = 3.0
HEARD_SECONDS: Final = 30.0
LOST: Final = frozenset({"LEASE_EXPIRED", "WORKER_LOST"})
NOBODY: Final = "nobody works on this yet: start `tenure up`, or look with `tenure status`"


class Display:
    """One line, written over on a terminal; elsewhere a line with each change of status, and now and then."""

    def __init__(self) -> None:
        self._over = sys.stderr.isatty()
        self._status = ""
        self._said_at = 0.0
        self._width = 0

    def show(self, row: Mapping[str, Any]) -> None:
        line = output.clean(f"{title(row)}: {figures(row)}")
        if self._over:
            sys.stderr.write(f"\r{line:<{self._width}}")
            sys.stderr.flush()
            self._width = len(line)
        elif row["status"] != self._status or boottime() - self._said_at > LINE_SECONDS:
            sys.stderr.write(f"{line}\n")
            self._said_at = boottime()
        self._status = row["status"]

    def say(self, line: str) -> None:
        self.close()
        sys.stderr.write(f"{output.clean(line)}\n")

    def close(self) -> None:
        if self._over and self._width:
            sys.stderr.write("\n")
            self._width = 0


async def follow_sync(run_id: str, store: Store) -> dict[str, Any]:
    """The row of the run, or of its last successor, once it has ended."""
    display = Display()
    nobody_at: float | None = boottime() + NOBODY_SECONDS
    try:
        while True:
            row = await _read(run_id, store, display)
            if row is not None:
                display.show(row)
                if is_over(row):
                    following = await _successor(row, store)
                    if following is None:
                        return row
                    display.say(f"{run_id} was lost with its worker; {following} goes on")
                    run_id = following
                    continue
            if nobody_at is not None and boottime() >= nobody_at:
                nobody_at = None
                if row is not None and row["status"] == "pending" and not await someone_works(store):
                    display.say(NOBODY)
            await anyio.sleep(LOOK_SECONDS)
    finally:
        display.close()


async def someone_works(store: Store) -> bool:
    row = await store.row("read_scm_workforce", HEARD_SECONDS)
    return row is not None and row["has_leader"] and row["replicas"] > 0


async def _read(run_id: str, store: Store, display: Display) -> dict[str, Any] | None:
    try:
        row = await store.row("read_sync_run", run_id)
    except (DatabaseUnreachable, OutcomeUnknown):
        display.say("the database does not answer just now")
        return None
    if row is None:
        raise NotFound(kind="sync", name=run_id)
    return plain(row)


async def _successor(row: Mapping[str, Any], store: Store) -> str | None:
    """None: it ended, and nobody goes on with it."""
    if row["status"] != "failed" or (row["error_json"] or {}).get("code") not in LOST:
        return None
    while True:
        next_ = await store.row("read_sync_successor", row["run_id"])
        if next_ is None or next_["run_id"] is not None or not next_["is_due"]:
            return None if next_ is None else next_["run_id"]
        await anyio.sleep(LOOK_SECONDS)


def is_over(row: Mapping[str, Any]) -> bool:
    final = row["status"] in {"completed", "exhausted", "cancelled"}
    return final or (row["status"] == "failed" and row["finished_at"] is not None)


def title(row: Mapping[str, Any]) -> str:
    return f"{row['run_id']} ({row['source_type']} of {row['repo']})"


def figures(row: Mapping[str, Any]) -> str:
    """Status, batches, what they brought, where it stands, and what went wrong."""
    stats = row["stats_json"] or {}
    counts = ", ".join(f"{stats.get(what, 0):,} {what}" for what in ("inserted", "updated", "skipped"))
    parts = [str(row["status"]), f"{stats.get('batches', 0):,} batches", counts]
    if row["watermark"] is not None:
        parts.append(f"at {row['watermark']}")
    if stats.get("failures"):
        parts.append(f"{stats['failures']:,} failures")
    if row["attempts"] > 1:
        parts.append(f"attempt {row['attempts']} of {row['max_attempts']}")
    if row["error_json"] and row["status"] != "completed":
        error = row["error_json"]
        parts.append(f"{error.get('code', '')} {error.get('message', '')}".strip())
    return ", ".join(part for part in parts if part)


def summary(row: Mapping[str, Any]) -> str:
    took = (row["stats_json"] or {}).get("duration_ms")
    return f"{title(row)}: {figures(row)}" + (f", in {output.duration(took / 1000)}" if took else "")
