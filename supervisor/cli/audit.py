"""`tenure audit`: who changed what."""

from typing import Annotated

import typer

from supervisor.cli import output, session
from supervisor.cli.inputs import BIGINT, encodable
from supervisor.cli.session import Json
from supervisor.stored_json import readable

app = typer.Typer(no_args_is_help=True, help="The audit: who changed what.")


@app.command("list")
def list_(
    target: Annotated[
        str | None, typer.Option(help="Only of this, such as job:backup.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    before: Annotated[
        int | None,
        typer.Option(min=1, max=BIGINT, help="Only with a smaller id: the next page.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> int:
    """List what operators did, newest first; --json has what each thing was before and after.

    Example: `tenure audit list --target job:backup --json`
    """
    wanted = encodable(target, "the target") if target is not None else None
    rows = session.run(lambda store: store.rows("list_audit", wanted, before, limit))
    if as_json:
        output.print_json(
            [
                {
                    **{name: row[name] for name in ("id", "at", "actor", "action", "target", "login")},
                    **{name: row[name] and readable(row[name]) for name in ("before", "after")},
                }
                for row in rows
            ]
        )
        return 0
    output.print_table(
        ["ID", "WHEN", "WHO", "WHAT", "TARGET"],
        (
            [row["id"], output.age(row["now"], row["at"]), row["actor"], row["action"], row["target"]]
            for row in rows
        ),
        empty="nothing was changed yet",
    )
    if len(rows) == limit:
        output.say(f"more: --before {rows[-1]['id']}")
    return 0
