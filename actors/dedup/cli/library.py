"""`tenure library`: directories of files, what is known of them, and their scans."""

from typing import Annotated, Any

import typer
from rich.filesize import decimal

from actors.dedup.cli import library_scan, library_status
from actors.dedup.cli.inputs import LibraryName, check_library, libraries_directory, library_path
from actors.dedup.removal import remove_library
from supervisor.cli import output, session
from supervisor.cli.session import Json
from supervisor.config import load_settings
from supervisor.store import Record

app = typer.Typer(no_args_is_help=True, help="Libraries: directories of files, scanned and hashed.")


@app.command()
def add(
    name: LibraryName,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="A directory beneath TENURE_LIBRARIES_DIR, relative to it or absolute.",
            show_default=False,
        ),
    ],
    as_json: Json = False,
) -> int:
    """Add a library. Nothing is read yet: `tenure library scan NAME` does that.

    Examples:

    - `tenure library add photos photos`   the directory photos in TENURE_LIBRARIES_DIR
    - `tenure library add archive /srv/libraries/old/archive`   absolute, when it lies beneath it

    Refused: a path that leads out, with `..`, `~` or `$`, through a symbolic link, or inside another library.
    """
    check_library(name)
    settings = load_settings()
    relative = library_path(libraries_directory(settings), path)
    row = session.run(lambda store: store.row("add_library_root", session.actor(), name, relative), settings)
    assert row is not None  # noqa: S101  it raises where there is none
    if as_json:
        output.print_json({field: row[field] for field in ("id", "name", "path", "created_at")})
    else:
        output.say(f"added library {name} at {relative}; next: tenure library scan {name} --hash --wait")
    return 0


@app.command("list")
def list_(as_json: Json = False) -> int:
    """List the libraries, with what their last scan saw.

    Example: `tenure library list --json | jq -r '.[].name'`
    """
    rows = session.run(lambda store: store.rows("list_libraries"))
    if as_json:
        output.print_json([_without_now(row) for row in rows])
        return 0
    output.print_table(
        ["LIBRARY", "PATH", "SCANNED", "FILES", "SIZE", "LAST SCAN"],
        (
            [
                row["name"],
                row["path"],
                output.age(row["now"], row["last_scanned_at"]) or "never",
                row["files"],
                decimal(row["bytes"]) if row["bytes"] is not None else "",
                row["last_scan"],
            ]
            for row in rows
        ),
        empty="no libraries yet: `tenure library add --help`",
    )
    return 0


@app.command()
def remove(name: LibraryName, as_json: Json = False) -> int:
    """Forget a library: its files, hashes, scans and jobs. The originals stay where they are.

    Exits 4 while it has jobs that have not ended, 5 when there is no such library.

    Example: `tenure library remove photos`
    """
    check_library(name)
    removed = session.run(lambda store: remove_library(store, session.actor(), name))
    if as_json:
        output.print_json({"id": removed, "name": name, "removed": True})
    else:
        output.say(f"removed library {name}; its files are untouched")
    return 0


def _without_now(row: Record) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "now"}


app.command("scan")(library_scan.scan)
app.command("status")(library_status.status)
app.command("errors")(library_status.errors)
