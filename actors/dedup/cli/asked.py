"""A command that makes a run: say which, and with --wait stay until it has ended.

Exit codes: 0 made, or ended well; 1 ended otherwise; 130 the waiting was interrupted, the work goes on.
"""

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from actors.dedup.cli.trigger import trigger
from actors.dedup.cli.work import NOBODY, follow_work, plain, someone_works, summary
from supervisor.cli import output, session
from supervisor.errors import NotFound
from supervisor.store import Record, Store

INTERRUPTED: Final = 130

Wait = Annotated[bool, typer.Option("--wait", help="Stay until it has ended; Ctrl-C leaves it running.")]


def ask_for(action: str, payload: Mapping[str, Any], *, wait: bool, as_json: bool) -> int:
    async def make(store: Store) -> tuple[Record, bool]:
        if (library := payload.get("library")) is not None:
            await found_library(store, library)
        run = await trigger(store, session.actor(), action, payload)
        return run, await someone_works(store)

    run, works = session.run(make)
    if wait:
        return _wait(run, as_json=as_json)
    if as_json:
        output.print_json(dict(run))
        return 0
    output.say(f"run {run['id']} ", output.state(run["state"]), f"; follow it: tenure run wait {run['id']}")
    if not works:
        output.say(NOBODY)
    return 0


async def found_library(store: Store, name: str) -> Record:
    row = await store.row("read_library_root", name)
    if row is None:
        raise NotFound(kind="library", name=name)
    return row


def _wait(run: Record, *, as_json: bool) -> int:
    try:
        last, jobs = session.run(lambda store: follow_work(run["id"], store))
    except KeyboardInterrupt:
        sys.stderr.write(f"the work goes on without you: tenure run wait {run['id']}, or run cancel\n")
        return INTERRUPTED
    if as_json:
        output.print_json({**last, "created": run["created"], "jobs": [plain(job) for job in jobs]})
    else:
        for job in jobs:
            output.say(summary(job))
        if last["state"] != "SUCCEEDED":
            why = f": {last['error_code'] or ''} {last['error_message'] or ''}".rstrip(": ")
            output.say(f"run {last['id']} ", output.state(last["state"]), why)
    return 0 if last["state"] == "SUCCEEDED" else 1
