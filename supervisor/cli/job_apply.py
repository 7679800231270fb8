"""`tenure job apply`: jobs as a file says them. The difference is shown before anything is changed."""

import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from supervisor.apply import Columns, Difference, difference, read_jobs
from supervisor.cli import output, session
from supervisor.cli.inputs import run_actors, unsuited
from supervisor.cli.session import Json
from supervisor.errors import BadInput
from supervisor.store import Store
from supervisor.stored_json import readable

FILE_BYTES: Final = 16 * 1024 * 1024


def apply(
    file: Annotated[
        str, typer.Option("--file", "-f", help="A TOML file, or - for standard input.", show_default=False)
    ],
    prune: Annotated[bool, typer.Option("--prune", help="Remove every job that is not in the file.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the difference and change nothing.")
    ] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="With --dry-run: exit 1 when there is a difference.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Make the jobs what a file says: show the difference, ask, then change all of it or nothing.

    The file has a table a job, with the names of `job add`'s options:

        [jobs.nightly]
        domain = "command"
        cron = "30 2 * * *"
        timezone = "Europe/Berlin"
        payload = { argv = ["backup", { argument = "target" }] }
        parameters = { target = { type = "text", default = "all" } }

    What a table does not name has its default; without `enabled` a paused job stays paused. Where there is
    no terminal to ask on, --yes or --dry-run is needed.

    Examples:

    - `tenure job apply -f jobs.toml`
    - `tenure job apply -f jobs.toml --prune --yes --json`
    - `tenure job apply -f jobs.toml --prune --dry-run --exit-code`   is the database as the file says?

    Exits 2 when anything in the file is wrong (every fault is named), 4 when somebody changed the jobs
    meanwhile or a job to be removed has runs that have not ended; nothing is changed then.
    """
    if dry_run and yes:
        raise BadInput(what="--dry-run and --yes exclude each other")
    if exit_code and not dry_run:
        raise BadInput(what="--exit-code needs --dry-run")
    wanted = _read(file)
    existing, seen = session.run(partial(_existing, set(wanted) if not prune else None))
    found = difference(wanted, existing, prune=prune)
    if not as_json:
        _show(found)
    applied = not dry_run and not found.empty and _agreed(yes=yes, as_json=as_json)
    if applied:
        session.run(partial(_apply, wanted, prune, seen))
    if as_json:
        output.print_json({**_jsonable(found), "applied": applied})
    elif not found.empty:
        output.say("applied" if applied else "nothing was changed")
    return 1 if exit_code and not found.empty else 0


def _read(file: str) -> dict[str, Columns]:
    try:
        text = sys.stdin.read(FILE_BYTES + 1) if file == "-" else Path(file).read_text("utf-8")
        document = tomllib.loads(text if len(text) <= FILE_BYTES else _too_long())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(what=f"{file} cannot be read: {error}") from None
    jobs, faults = read_jobs(document, partial(unsuited, run_actors()), session.wall_clock())
    if faults:
        raise BadInput(what="\n".join([f"{file}: nothing was changed", *(f"- {fault}" for fault in faults)]))
    return jobs


def _too_long() -> NoReturn:
    raise ValueError(f"over {FILE_BYTES} characters")


async def _existing(names: set[str] | None, store: Store) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """What there is, and when each of those the file is about (all of them with --prune) was changed last."""
    rows = await store.rows("list_definitions")
    jobs = {row["name"]: readable(row["job"]) for row in rows}
    return jobs, {row["name"]: row["seen"] for row in rows if names is None or row["name"] in names}


async def _apply(wanted: Mapping[str, Columns], prune: bool, seen: Mapping[str, int], store: Store) -> None:
    await store.rows("apply_jobs", session.actor(), json.dumps(wanted), prune, json.dumps(seen))


def _agreed(*, yes: bool, as_json: bool) -> bool:
    if yes:
        return True
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput(what="there is nobody to ask: say --yes, or --dry-run to look only")
    return typer.confirm("Apply this?", default=False)


def _jsonable(found: Difference) -> dict[str, Any]:
    changed = {
        name: {field: {"from": was, "to": becomes} for field, (was, becomes) in fields.items()}
        for name, fields in (found.changed or {}).items()
    }
    return {**asdict(found), "changed": changed}


def _show(found: Difference) -> None:
    for name in found.added:
        output.say(f"+ {name}")
    for name, fields in (found.changed or {}).items():
        output.say(f"~ {name}")
        for field, (was, becomes) in fields.items():
            output.say(f"    {field}: {json.dumps(was)} -> {json.dumps(becomes)}")
    for name in found.removed:
        output.say(f"- {name}")
    output.say(
        f"{len(found.added)} to add, {len(found.changed or {})} to change, {len(found.removed)} to remove,"
        f" {found.unchanged} unchanged"
    )
