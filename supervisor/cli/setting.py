"""`tenure setting`: what all replicas share, in the database. Changes are audited."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer

from supervisor.cli import output, session
from supervisor.cli.inputs import encodable
from supervisor.cli.session import Json
from supervisor.errors import BadInput, NotFound
from supervisor.setting import bounds, refusal
from supervisor.store import Record, Store
from supervisor.stored_json import readable

app = typer.Typer(no_args_is_help=True, help="Settings that all replicas share.")


@app.command()
def get(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only this one.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> int:
    """Show one setting, or all. Exits 5 when there is no such setting.

    Examples:

    - `tenure setting get`
    - `tenure setting get reassign_after_seconds`   prints the value alone
    """
    rows = session.run(lambda store: store.rows("list_settings"))
    if name is not None:
        return _get_one(encodable(name, "the name"), rows, as_json=as_json)
    if as_json:
        output.print_json({row["name"]: readable(row["value"]) for row in rows})
        return 0
    output.print_table(
        ["NAME", "VALUE", "BETWEEN", "CHANGED"],
        ([row["name"], row["value"], bounds(dict(row)), _changed(row)] for row in rows),
        empty="no settings",
    )
    return 0


@app.command("set")
def set_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="From `setting get`.", show_default=False)],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="A number, or true or false.", show_default=False)
    ],
    as_json: Json = False,
) -> int:
    """Change a setting for all replicas; they read it with their next tick.

    Exits 5 when there is no such setting, 2 when it cannot have that value.

    Example: `tenure setting set log_retention_days_db 14`
    """
    encodable(name, "the name")
    wanted = _parse(encodable(value, "the value"))
    was = session.run(partial(_save, name, wanted, value))
    if as_json:
        output.print_json({"name": name, "value": wanted, "was": readable(was)})
    else:
        output.say(f"{name} is now {wanted}; it was {was}")
    return 0


async def _save(name: str, wanted: Any, value: str, store: Store) -> str:
    try:
        was: str = await store.value("save_setting", session.actor(), name, json.dumps(wanted))
    except BadInput:
        raise await refusal(store, name, value) from None
    return was


def _get_one(name: str, rows: Sequence[Record], *, as_json: bool) -> int:
    row = next((row for row in rows if row["name"] == name), None)
    if row is None:
        raise NotFound(kind="setting", name=name)
    if as_json:
        output.print_json({"name": name, "value": readable(row["value"])})
    else:
        output.say(row["value"])
    return 0


def _changed(row: Record) -> str:
    if row["value"] == row["initial"]:
        return "default"
    was = f", default {row['initial']}" if row["initial"] is not None else ""
    return output.age(row["now"], row["updated_at"]) + was


def _parse(value: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        parsed = json.loads(value, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise BadInput(what=f"{value!r} is neither a number nor true or false") from None
    if isinstance(parsed, bool):
        return parsed
    if not isinstance(parsed, (int, float)) or abs(parsed) > 1e15:
        raise BadInput(what=f"{value!r} is not a number of a sensible size")
    return parsed
