"""Following a run: to its end over further attempts, and through its log."""

import sys
from dataclasses import asdict
from typing import Any, Final

import anyio

from supervisor.archive import read_log
from supervisor.artifacts.local import local_artifacts
from supervisor.cli import output
from supervisor.clock import boottime, jitter
from supervisor.config import load_settings
from supervisor.errors import DatabaseUnreachable, NotFound, OutcomeUnknown
from supervisor.jobrun import TERMINAL
from supervisor.store import Store

POLL_SECONDS: Final = 0.25
OUTAGE_SECONDS: Final = 60.0


async def follow(run_id: int, timeout: float | None, store: Store) -> tuple[dict[str, Any], bool]:
    """The last row of the chain from this run on, and whether the time was over first."""
    give_up_at = boottime() + timeout if timeout is not None else float("inf")
    current = run_id
    while True:
        row = await _progress(current, give_up_at, store)
        if row["state"] in TERMINAL:
            if row["next_attempt_id"] is not None:
                current = row["next_attempt_id"]
                continue
            if not row["goes_on"]:
                return row, False
        if boottime() >= give_up_at:
            return row, True
        await anyio.sleep(min(jitter(POLL_SECONDS), max(0.0, give_up_at - boottime())))


async def _progress(run_id: int, give_up_at: float, store: Store) -> dict[str, Any]:
    """Reading changes nothing, so an outage shorter than our patience is waited out."""
    until = min(boottime() + OUTAGE_SECONDS, give_up_at)
    while True:
        try:
            row = await store.row("read_progress", run_id)
        except (DatabaseUnreachable, OutcomeUnknown):
            if boottime() >= until:
                raise
            await anyio.sleep(jitter(1.0))
            continue
        if row is None:
            raise NotFound(kind="run", name=run_id)
        return dict(row)


async def read_whole_log(run_id: int, store: Store) -> list[dict[str, Any]]:
    """From the database, and from where it was moved to."""
    if await store.row("read_progress", run_id) is None:
        raise NotFound(kind="run", name=run_id)
    return [asdict(line) async for line in read_log(store, local_artifacts(load_settings()), run_id)]


def print_log(lines: list[dict[str, Any]], *, raw: bool) -> None:
    """Somebody's output does not steer a terminal, unless asked for as it is."""
    for line in lines:
        stream = sys.stderr if line["stream"] == "stderr" else sys.stdout
        as_it_is = raw or not stream.isatty()
        stream.write(line["body"] if as_it_is else output.clean(line["body"], keep="\n\t"))
        stream.flush()
