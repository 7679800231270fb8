"""`tenure worker`: the replicas as workers."""

from typing import Annotated

import typer

from supervisor.cli import output, session
from supervisor.cli.inputs import encodable
from supervisor.cli.session import Json
from supervisor.config import load_settings
from supervisor.status import contact

app = typer.Typer(no_args_is_help=True, help="The replicas as workers.")


@app.command("list")
def list_(
    every: Annotated[bool, typer.Option("--all", help="Also those that are gone.")] = False,
    as_json: Json = False,
) -> int:
    """List the replicas: state, domains, slots, when they were last heard.

    Example: `tenure worker list --json | jq -r '.[].worker_id'`
    """
    settings = load_settings()
    found = session.run(lambda store: store.rows("list_replicas", every), settings)
    bound = settings.timings.confirm_after
    rows = [{**row, "contact": contact(row["heartbeat_age_seconds"], bound)} for row in found]
    if as_json:
        output.print_json(rows)
        return 0
    output.print_table(
        ["WORKER", "STATE", "DOMAINS", "CLAIMS", "HEARD", "DRAIN"],
        (
            [
                row["worker_id"],
                output.state(worker_word(row["state"], row["contact"])),
                ",".join(row["domains"]),
                f"{row['claims']}/{row['slots']}",
                f"{output.duration(max(0.0, row['heartbeat_age_seconds']))} ago",
                "asked" if row["drain_requested_at"] else "",
            ]
            for row in rows
        ),
        empty="no replica is running: `tenure up`",
    )
    return 0


def worker_word(state: str, heard: str) -> str:
    """What people are told: one that has left said so, and is not missed."""
    return "silent" if state != "gone" and heard == "silent" else state


@app.command()
def drain(
    worker_id: Annotated[
        str, typer.Argument(metavar="ID", help="From `tenure worker list`.", show_default=False)
    ],
    as_json: Json = False,
) -> int:
    """Ask a replica to drain: it takes no more work, ends or gives back what it has, and exits.

    Exits 5 when there is no such worker, 4 when it is gone.

    Example: `tenure worker drain web-1-5f3c`
    """
    name = encodable(worker_id, "the worker's id")
    row = session.run(lambda store: store.row("request_drain", session.actor(), name))
    assert row is not None  # noqa: S101  it raises where there is none
    if as_json:
        output.print_json(dict(row))
    else:
        output.say(
            f"{row['worker_id']} {'was asked' if row['requested'] else 'had been asked already'} to drain"
        )
    return 0
