"""`tenure thumbs`: small pictures of pictures and videos."""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import anyio
import typer
from rich.filesize import decimal

from actors.dedup.cli.asked import INTERRUPTED, Wait, ask_for
from actors.dedup.cli.inputs import GroupKey, check_cleanup_group, check_library, check_thumb
from actors.dedup.orders import LEAST_DIMENSION, MOST_DIMENSION
from supervisor.cli import output, session
from supervisor.cli.inputs import BIGINT
from supervisor.cli.session import Json
from supervisor.clock import jitter
from supervisor.config import load_settings
from supervisor.errors import BadInput, NotFound
from supervisor.store import Record, Store

POLL_SECONDS: Final = 0.2
LONGEST_DELAY: Final = 31_536_000.0

app = typer.Typer(no_args_is_help=True, help="Thumbnails of pictures and videos.")


class NoThumbnail(NotFound):
    """no thumbnail {name}"""

    hint = "`tenure thumbs request FILE_ID` makes one and prints its key"


@app.command()
def request(
    file_id: Annotated[
        int | None,
        typer.Argument(
            min=1,
            max=BIGINT,
            metavar="FILE_ID",
            help="As `tenure duplicates` shows it.",
            show_default=False,
        ),
    ] = None,
    library: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a whole library instead.", show_default=False)
    ] = None,
    format_: Annotated[Literal["webp", "jpeg"], typer.Option("--format", help="What is made.")] = "webp",
    size: Annotated[
        int, typer.Option(min=LEAST_DIMENSION, max=MOST_DIMENSION, help="Pixels of its longer side, at most.")
    ] = 256,
    wait: Wait = False,
    as_json: Json = False,
) -> int:
    """Ask for the thumbnail of a file, or for those of a library.

    Examples:

    - `tenure thumbs request 17 --wait`
    - `tenure thumbs request --library photos --format jpeg --size 512 --wait`

    With --wait: exit 0 when it is ready, 1 when it could not be made. Exits 4 when the queue is full, 5 when
    there is no such file.
    """
    if (file_id is None) == (library is None):
        raise BadInput(what="name one: a FILE_ID, or a --library")
    if library is not None:
        check_library(library)
        payload = {"library": library, "format": format_, "max_dimension": size}
        return ask_for("thumbnails-for-library", payload, wait=wait, as_json=as_json)

    async def work(store: Store) -> Record:
        asked = await store.row("request_one_thumbnail", session.actor(), file_id, format_, size)
        assert asked is not None  # noqa: S101  it raises where there is none
        return await (_ended if wait else _read)(store, asked["thumb_key"])

    try:
        row = session.run(work)
    except KeyboardInterrupt:
        output.say("it will be made without you")
        return INTERRUPTED
    _print(row, as_json=as_json)
    return 1 if wait and row["status"] == "failed" else 0


@app.command()
def show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="From `thumbs request`.", show_default=False)],
    as_json: Json = False,
) -> int:
    """Show a thumbnail: of which file it is, how far it is, and where it lies.

    Example: `xdg-open "$(tenure thumbs show KEY --json | jq -r .path)"`
    """
    check_thumb(key)
    _print(session.run(lambda store: _read(store, key)), as_json=as_json)
    return 0


@app.command()
def cleanup(
    group_key: GroupKey,
    delay: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=LONGEST_DELAY,
            metavar="SECONDS",
            help="Not before that.",
            show_default="the setting dedup_cleanup_delay_seconds",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Remove the thumbnails of a group later; the originals are never touched.

    A group that is being cleaned already is not asked for twice.

    Example: `tenure thumbs cleanup blake3:4b22... --delay 0`
    """
    check_cleanup_group(group_key)
    row = session.run(lambda store: store.row("schedule_group_cleanup", session.actor(), group_key, delay))
    assert row is not None  # noqa: S101  it answers always
    if as_json:
        output.print_json({name: row[name] for name in ("id", "group_key", "status", "execute_after")})
    else:
        output.say(f"cleanup {row['id']} of {group_key} {row['status']}, due {row['execute_after']}")
    return 0


async def _read(store: Store, key: str) -> Record:
    row = await store.row("show_thumbnail", key)
    if row is None:
        raise NoThumbnail(kind="thumbnail", name=key)
    return row


async def _ended(store: Store, key: str) -> Record:
    while True:
        row = await _read(store, key)
        if row["status"] in {"ready", "failed"}:
            return row
        await anyio.sleep(jitter(POLL_SECONDS))


def _print(row: Record, *, as_json: bool) -> None:
    shown: dict[str, Any] = {name: value for name, value in row.items() if name != "now"}
    directory = load_settings().thumbs_dir or Path()
    shown["path"] = str(directory / row["output_relpath"]) if row["status"] == "ready" else None
    if as_json:
        output.print_json(shown)
        return
    output.print_facts(
        [
            ("key", row["thumb_key"]),
            ("status", row["status"]),
            ("file", f"{row['file_id']} {row['relative_path']}"),
            ("library", row["library"]),
            ("group", row["group_key"]),
            ("format", f"{row['format']}, at most {row['max_dimension']} pixels"),
            ("size", _size(row)),
            ("path", shown["path"]),
            ("error", row["error_code"] and f"{row['error_code']} {row['error_message'] or ''}"),
        ]
    )


def _size(row: Record) -> str | None:
    if row["width"] is None or row["bytes_size"] is None:
        return None
    return f"{row['width']} x {row['height']}, {decimal(row['bytes_size'])}"
