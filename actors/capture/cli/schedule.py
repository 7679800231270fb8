"""`tenure schedule`: the day as it is, as it was, and what changed."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from actors.capture.cli import inputs
from actors.capture.differences import differences
from actors.capture.views import read_day
from supervisor.cli import output, session
from supervisor.cli.session import Json
from supervisor.store import Store

Version = Annotated[
    int | None,
    typer.Option(min=1, max=inputs.INTEGER, metavar="N", help="As it was.", show_default="the current one"),
]


def show(user: inputs.User, date: inputs.Day, version: Version = None, as_json: Json = False) -> int:
    """Show the schedule of a day.

    Example: `tenure schedule show --user 7 --date 2026-11-16`
    """
    day = inputs.day(date)
    shown = session.run(lambda store: read_day(store, user, day, version))
    if as_json:
        output.print_json(shown)
        return 0
    which = "current" if shown["version"] == shown["current_version"] else f"of {shown['current_version']}"
    output.say(f"{shown['schedule_date']} for user {user}: version {shown['version']} ({which})")
    print_entries(shown["payload"])
    return 0


def days(
    user: inputs.User,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    as_json: Json = False,
) -> int:
    """List the days that a user has a schedule for, newest first.

    Example: `tenure schedule days --user 7`
    """
    rows = session.run(lambda store: store.rows("list_schedule_days", user, None, limit))
    if as_json:
        output.print_json([dict(row) for row in rows])
        return 0
    output.print_table(
        ["DAY", "VERSION"],
        ([row["schedule_date"], row["current_version"]] for row in rows),
        empty=f"user {user} has no schedule yet: `tenure capture submit --user {user} PICTURE`",
    )
    return 0


def versions(
    user: inputs.User,
    date: inputs.Day,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    as_json: Json = False,
) -> int:
    """List the versions of a day, newest first.

    Example: `tenure schedule versions --user 7 --date 2026-11-16`
    """
    day = inputs.day(date)
    rows = session.run(lambda store: store.rows("list_schedule_versions", user, day, None, limit))
    if as_json:
        output.print_json([dict(row) for row in rows])
        return 0
    output.print_table(
        ["VERSION", "ENTRIES", "MADE", "SESSION"],
        ([row["version"], row["entries"], row["created_at"], row["session_id"]] for row in rows),
        empty=f"user {user} has no schedule for {day}",
    )
    return 0


def diff(
    user: inputs.User,
    date: inputs.Day,
    since: Annotated[
        int | None,
        typer.Option("--from", min=1, max=inputs.INTEGER, metavar="N", show_default="the one before"),
    ] = None,
    until: Annotated[
        int | None,
        typer.Option("--to", min=1, max=inputs.INTEGER, metavar="N", show_default="the current one"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Compare two versions of a day.

    Example: `tenure schedule diff --user 7 --date 2026-11-16 --from 1 --to 3`
    """
    day = inputs.day(date)

    async def work(store: Store) -> tuple[dict[str, Any], dict[str, Any]]:
        after = await read_day(store, user, day, until)
        return await read_day(store, user, day, since or max(1, after["version"] - 1)), after

    before, after = session.run(work)
    found = differences(before["payload"].get("entries", []), after["payload"].get("entries", []))
    if as_json:
        output.print_json(
            {
                "from_version": before["version"],
                "to_version": after["version"],
                "added": found.added,
                "removed": found.removed,
                "changed": [{"before": old, "after": new} for old, new in found.changed],
            }
        )
        return 0
    marked = [("-", entry) for entry in found.removed]
    marked += [line for old, new in found.changed for line in (("-", old), ("+", new))]
    marked += [("+", entry) for entry in found.added]
    output.print_table(
        ["", *_HEAD],
        ([mark, *_cells(entry)] for mark, entry in marked),
        empty=f"versions {before['version']} and {after['version']} say the same",
    )
    return 0


_HEAD = ("START", "END", "TITLE", "LOCATION")


def _cells(entry: Mapping[str, Any]) -> list[Any]:
    return [entry.get(name.lower()) for name in _HEAD]


def print_entries(payload: Mapping[str, Any]) -> None:
    output.print_table(_HEAD, (_cells(entry) for entry in payload.get("entries", [])), empty="no entries")
    for note in payload.get("notes", []):
        output.say(f"note: {note}")


def add_to(app: typer.Typer) -> None:
    for command in (show, days, versions, diff):
        app.command()(command)
