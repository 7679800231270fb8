"""`tenure leader`: who leads, who led, and how to make the leader step down."""

from typing import Annotated

import typer

from supervisor.cli import output, session
from supervisor.cli.session import Json
from supervisor.store import Record

app = typer.Typer(no_args_is_help=True, help="Who leads, and who led.")


@app.command()
def show(as_json: Json = False) -> int:
    """Show the current term: epoch, holder, lease.

    Example: `tenure leader show --json | jq .epoch`
    """
    row = session.run(lambda store: store.row("show_leader"))
    assert row is not None  # noqa: S101  the row is never deleted
    now = row["now"]
    found = {name: value for name, value in row.items() if name != "now"}
    if as_json:
        output.print_json(found)
        return 0
    output.print_facts(
        [
            ("leader", row["worker_id"] if row["live"] else "nobody leads"),
            ("epoch", row["epoch"]),
            ("last leader", None if row["live"] else row["last_holder"]),
            ("since", output.age(now, row["since"])),
            ("lease", output.age(now, row["expires_at"])),
            ("renewed", output.age(now, row["renewed_at"])),
            ("resigning", "asked to resign" if row["live"] and row["resigning"] else None),
            ("timeline", row["timeline"]),
            ("quarantine", output.age(now, row["quarantine_until"])),
        ]
    )
    return 0


@app.command()
def resign(as_json: Json = False) -> int:
    """Ask the leader to step down; another replica takes over with the next epoch.

    With one replica only, the same one leads again. Exits 4 when nobody leads.

    Example: `tenure leader resign`
    """
    row = session.run(lambda store: store.row("request_resign", session.actor()))
    assert row is not None  # noqa: S101  it raises where there is none
    if as_json:
        output.print_json(dict(row))
    else:
        output.say(f"asked {row['worker_id']} to resign epoch {row['epoch']}")
    return 0


@app.command()
def history(
    limit: Annotated[int, typer.Option(min=1, max=10000, help="How many, newest first.")] = 20,
    as_json: Json = False,
) -> int:
    """List who led when, newest first, and how long nobody did before.

    Of a leader that was lost its last renewal is known: the gap after it is at most so long.

    Example: `tenure leader history`
    """
    rows = session.run(lambda store: store.rows("list_tenures", limit))
    if as_json:
        output.print_json([{name: value for name, value in row.items() if name != "now"} for row in rows])
        return 0
    output.print_table(
        ["EPOCH", "WHAT", "HOLDER", "WHEN", "NOBODY LED", "REASON"],
        (
            [
                row["epoch"],
                row["what"],
                row["holder"],
                output.age(row["now"], row["at"]),
                _gap(row, before),
                row["reason"],
            ]
            for row, before in zip(rows, [*rows[1:], None], strict=True)
        ),
        empty="nobody has led yet",
    )
    return 0


def _gap(row: Record, before: Record | None) -> str:
    """Before this tenure; '' where nobody noted it."""
    if row["what"] != "ACQUIRED":
        return ""
    if row["before_renewed_at"] is not None:
        since = output.duration(max(0.0, (row["at"] - row["before_renewed_at"]).total_seconds()))
        return f"up to {since}, since the last renewal"
    if before is not None and before["what"] == "RESIGNED":
        return output.duration(max(0.0, (row["at"] - before["at"]).total_seconds()))
    return ""
