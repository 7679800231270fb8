"""`tenure status`: the leader, the replicas, the runs, and what waits."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final

import anyio
import typer
from rich.text import Text

from supervisor.calendar_types import parse_time
from supervisor.cli import output, session
from supervisor.cli.session import Json
from supervisor.cli.worker import worker_word
from supervisor.clock import boottime
from supervisor.config import Settings, Timings, load_settings
from supervisor.errors import BadInput, DatabaseUnreachable, OutcomeUnknown
from supervisor.lease import Lease
from supervisor.status import read_status
from supervisor.store import Store
from supervisor.why import given_up_at

WATCH_SECONDS: Final = 2.0


Watch = Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")]
Seconds = Annotated[
    float | None,
    typer.Argument(
        metavar="SECONDS", min=0.2, max=3600, help="With --watch: between two looks.", show_default="2"
    ),
]


def status(seconds: Seconds = None, watch: Watch = False, as_json: Json = False) -> int:
    """Show the leader, the replicas, the runs by state, and what waits.

    Ended runs are counted over the last 24 hours. With --watch and --json each look is one line.

    Examples:

    - `tenure status`
    - `tenure status --json | jq .leader.worker_id`
    - `tenure status --watch 5`
    """
    from supervisor.wiring import leases  # noqa: PLC0415  loads every domain

    if seconds is not None and not watch:
        raise BadInput(what=f"{seconds:g} seconds between looks: that needs --watch")
    settings = load_settings()
    known = leases()
    if watch:
        with suppress(KeyboardInterrupt):  # the way out, not a failure
            session.run(partial(_watch, known, settings, seconds or WATCH_SECONDS, as_json), settings)
        return 0
    found = session.run(lambda store: read_status(store, known, settings.timings.confirm_after), settings)
    if as_json:
        output.print_json(found)
    else:
        _show(found, settings.timings)
    return 0


async def _watch(
    known: Sequence[Lease], settings: Settings, seconds: float, as_json: bool, store: Store
) -> None:
    """The first look must succeed. Later ones may fail: what was seen stays, and that it is old is said."""
    last = await read_status(store, known, settings.timings.confirm_after)
    trouble, heard = None, boottime()
    if not as_json and sys.stdout.isatty():
        sys.stdout.write("\x1b[2J")
    while True:
        if as_json:
            output.print_json_line(last if trouble is None else {"error": trouble})
        else:
            paint = partial(_paint, last, settings.timings, trouble, boottime() - heard)
            output.screenful(paint)
        await anyio.sleep(seconds)
        try:
            last = await read_status(store, known, settings.timings.confirm_after)
            trouble, heard = None, boottime()
        except (DatabaseUnreachable, OutcomeUnknown) as error:
            trouble = str(error)


def _paint(found: dict[str, Any], timings: Timings, trouble: str | None, age_seconds: float) -> None:
    if trouble is not None:
        output.say(Text(f"as it was {output.duration(age_seconds)} ago", "bold red"), f": {trouble}")
        output.say("")
    _show(found, timings)


def _show(found: dict[str, Any], timings: Timings) -> None:
    leader = found["leader"]
    if leader is None:
        output.say(Text("nobody leads", "bold red"), "; `tenure doctor` says more")
    else:
        left = output.duration(leader["lease_remaining_seconds"])
        output.say(Text("leader ", "bold"), leader["worker_id"], f"  epoch {leader['epoch']}, lease {left}")
    output.say("")
    output.print_table(
        ["REPLICA", "STATE", "DOMAINS", "HEARD", "CLAIMS"],
        (
            [
                one["worker_id"],
                output.state(worker_word(one["state"], one["contact"])),
                ",".join(one["domains"]),
                f"{output.duration(one['heartbeat_age_seconds'])} ago",
                one["claims"],
            ]
            for one in found["replicas"]
        ),
        empty="no replica is running: `tenure up`",
    )
    output.say("")
    output.print_table(
        ["RUNS", "COUNT"], ([output.state(name), n] for name, n in found["runs"].items()), empty=""
    )
    output.say("")
    output.print_table(
        ["DOMAIN", "LAG"],
        ([name, output.duration(seconds)] for name, seconds in found["lag_seconds"].items()),
        empty="no domains",
    )
    for one in found["confirming"]:
        end = _given_up(one, leader, timings)
        output.say(output.state("CONFIRMING"), f" run {one['id']} on {one['worker_id']} until {end}")
    for one in found["orphaned"]:
        output.say(output.state("ORPHANED"), f" run {one['id']} since {one['since']}")


def _given_up(one: dict[str, Any], leader: dict[str, Any] | None, timings: Timings) -> str:
    if leader is None:
        return "a leader has watched it"
    deadline, since = (parse_time(text) for text in (one["deadline_at"], leader["since"]))
    return f"at most {given_up_at(deadline, since, timings).isoformat()}"
