"""Following a run: to its end over further attempts, and through its log."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from typing import Any, Final, TypeAlias

import anyio

from supervisor.archive import read_log
from supervisor.artifacts import Artifacts
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.cli import output
from supervisor.clock import boottime, jitter
from supervisor.config import load_settings
from supervisor.errors import DatabaseUnreachable, NotFound, OutcomeUnknown, TenureError
from supervisor.jobrun import TERMINAL
from supervisor.store import Store

POLL_SECONDS: Final = 0.25
OUTAGE_SECONDS: Final = 60.0
FOLLOW_OUTAGE_SECONDS: Final = 600.0

Tell: TypeAlias = Callable[[int, dict[str, Any]], None]
"""The run, and a line of its log."""
Say: TypeAlias = Callable[[str], None]
"""What is no line of any log."""


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
            return await _read_progress(run_id, store)
        except (DatabaseUnreachable, OutcomeUnknown):
            if boottime() >= until:
                raise
            await anyio.sleep(jitter(1.0))


async def _read_progress(run_id: int, store: Store) -> dict[str, Any]:
    row = await store.row("read_progress", run_id)
    if row is None:
        raise NotFound(kind="run", name=run_id)
    return dict(row)


async def read_whole_log(run_id: int, store: Store) -> list[dict[str, Any]]:
    """From the database, and from where it was moved to."""
    if await store.row("read_progress", run_id) is None:
        raise NotFound(kind="run", name=run_id)
    async with _opened_artifacts() as artifacts:
        return [asdict(line) async for line in read_log(store, artifacts, run_id)]


async def follow_log(run_id: int, tell: Tell, say: Say, store: Store) -> dict[str, Any]:
    """Tell every line once, as it comes, until the run and its further attempts have ended.

    What was told moves the place in the log, so an outage repeats nothing. A run's state is read before its
    lines: ended before they were read to their end, it has no more of them. (Lines of a worker that was given
    up come later than the end; `run logs` shows them.)
    """
    current, told = run_id, -1
    patience = Patience(say)
    async with _opened_artifacts() as artifacts:
        while True:
            try:
                row = await _read_progress(current, store)
                patience.over()
                async with aclosing(read_log(store, artifacts, current, after=told)) as lines:
                    async for line in lines:
                        tell(current, asdict(line))
                        told = line.seq
            except (DatabaseUnreachable, OutcomeUnknown) as error:
                await patience.wait(error)
                continue
            if row["state"] in TERMINAL and row["next_attempt_id"] is not None:
                say(
                    f"run {current} ended as {row['state']}; run {row['next_attempt_id']} is the next attempt"
                )
                current, told = row["next_attempt_id"], -1
            elif row["state"] in TERMINAL and not row["goes_on"]:
                return row
            else:
                await anyio.sleep(jitter(POLL_SECONDS))


class Patience:
    """With a database that was there before: an outage is told once, waited out, and its end told too."""

    def __init__(self, say: Say, seconds: float = FOLLOW_OUTAGE_SECONDS) -> None:
        self._say = say
        self._seconds = seconds
        self._met = False
        self._since: float | None = None

    async def wait(self, error: TenureError) -> None:
        """A short while; or the error, when there was no answer yet or the patience is over."""
        if self._since is None:
            self._since = boottime()
            if self._met:
                self._say(f"{error}; waiting for it to come back")
        if not self._met or boottime() - self._since >= self._seconds:
            raise error
        await anyio.sleep(jitter(min(1.0, 2 * POLL_SECONDS)))

    def over(self) -> None:
        if self._since is not None:
            self._say("the database answers again")
        self._met, self._since = True, None


def print_log(lines: list[dict[str, Any]], *, raw: bool) -> None:
    """Somebody's output does not steer a terminal, unless asked for as it is."""
    for line in lines:
        stream = sys.stderr if line["stream"] == "stderr" else sys.stdout
        as_it_is = raw or not stream.isatty()
        stream.write(line["body"] if as_it_is else output.clean(line["body"], keep="\n\t"))
        stream.flush()


@asynccontextmanager
async def _opened_artifacts() -> AsyncIterator[Artifacts]:
    from supervisor.artifacts.backends import open_artifacts  # noqa: PLC0415  every backend's client

    artifacts = open_artifacts(load_artifact_settings(), load_settings().state_dir)
    try:
        yield artifacts
    finally:
        await artifacts.aclose()
