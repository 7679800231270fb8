"""`tenure library scan`: walk a library, and hash what is new."""

from typing import Annotated, Any, Literal

import typer

from actors.dedup.cli.asked import Wait, ask_for
from actors.dedup.cli.inputs import LibraryName, check_library
from supervisor.cli.session import Json
from supervisor.errors import BadInput


def scan(
    name: LibraryName,
    hash_: Annotated[bool, typer.Option("--hash", help="Hash afterwards what is new or changed.")] = False,
    algorithm: Annotated[
        Literal["blake3", "sha256"] | None,
        typer.Option(help="Which hash; with --hash.", show_default="blake3"),
    ] = None,
    only_duplicates: Annotated[
        bool, typer.Option("--only-duplicates", help="Hash only files that can have a duplicate.")
    ] = False,
    thumbs: Annotated[
        bool, typer.Option("--thumbs", help="Ask for thumbnails of its pictures and videos at the end.")
    ] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Believe an empty directory: all its files are gone.")
    ] = False,
    wait: Wait = False,
    as_json: Json = False,
) -> int:
    """Find what is new, changed, moved or missing. Files that did not change are not read.

    Examples:

    - `tenure library scan photos`   in the background
    - `tenure library scan photos --hash --wait && tenure duplicates --library photos`
    - `tenure library scan photos --hash --only-duplicates`   the fastest way to the duplicates

    By schedule: `tenure job add nightly --domain dedup --action rescan-all --payload '{"hash": true}' --cron
    '0 3 * * *'`

    With --wait: exit 0 when it succeeded, 1 when not.
    """
    check_library(name)
    if not hash_ and (algorithm is not None or only_duplicates):
        raise BadInput(what="--algorithm and --only-duplicates say how to --hash, which is missing")
    payload: dict[str, Any] = {"library": name}
    payload |= {"hash": True} if hash_ else {}
    payload |= {"algorithm": algorithm} if algorithm is not None else {}
    payload |= {"mode": "duplicates"} if only_duplicates else {}
    payload |= {"thumbnails": True} if thumbs else {}
    payload |= {"allow_empty": True} if allow_empty else {}
    return ask_for("scan", payload, wait=wait, as_json=as_json)
