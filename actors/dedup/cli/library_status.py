"""`tenure library status` and `library errors`: what is known of a library, and what could not be read."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import typer
from rich.filesize import decimal

from actors.dedup.cli.asked import found_library
from actors.dedup.cli.inputs import LibraryName, check_library
from supervisor.cli import output, session
from supervisor.cli.session import Json
from supervisor.errors import NotFound
from supervisor.store import Record, Store

COUNT_SECONDS: Final = 120.0
PAGE: Final = 1000


def status(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only this one.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> int:
    """Show files, bytes, what is missing or still to hash, the last scan and the work at hand.

    Examples: `tenure library status`, `tenure library status photos --json | jq .to_hash`
    """
    if name is not None:
        check_library(name)
    rows = session.run(lambda store: store.rows("read_library_status", name, timeout=COUNT_SECONDS))
    if name is not None and not rows:
        raise NotFound(kind="library", name=name)
    if as_json:
        output.print_json(_status(rows[0]) if name is not None else [_status(row) for row in rows])
    elif name is not None:
        _print_one(rows[0])
    else:
        output.print_table(
            ["LIBRARY", "FILES", "SIZE", "MISSING", "TO HASH", "HASH ERRORS", "SCANNED", "WORK"],
            (
                [
                    row["name"],
                    row["files"],
                    decimal(row["bytes"]),
                    row["missing"],
                    row["to_hash"],
                    row["hash_errors"],
                    output.age(row["now"], row["last_scanned_at"]) or "never",
                    _work(row),
                ]
                for row in rows
            ),
            empty="no libraries yet: `tenure library add --help`",
        )
    return 0


def errors(name: LibraryName, as_json: Json = False) -> int:
    """List what the last scan could not read, and which files could not be hashed.

    Example: `tenure library errors photos --json | jq -r '.[].path'`
    """
    check_library(name)

    async def work(store: Store) -> list[Record]:
        library = await found_library(store, name)
        return [row async for row in _errors(store, library["id"])]

    rows = session.run(work)
    if as_json:
        output.print_json([dict(row) for row in rows])
        return 0
    output.print_table(
        ["STAGE", "CODE", "PATH", "MESSAGE"],
        ([row["stage"], row["code"], row["path"], row["message"]] for row in rows),
        empty=f"no errors in {name}",
    )
    return 0


async def _errors(store: Store, library_id: int) -> AsyncIterator[Record]:
    for query in ("walk_scan_errors", "walk_hash_errors"):
        after = ""
        while page := await store.rows(query, library_id, after, PAGE, timeout=COUNT_SECONDS):
            for row in page:
                yield row
            after = page[-1]["path"]


def _status(row: Record) -> dict[str, Any]:
    shown = {
        field: row[field]
        for field in (
            "name", "path", "last_scanned_at", "files", "bytes", "missing", "to_hash", "hash_errors",
        )
    }  # fmt: skip
    shown["last_scan"] = row["scan_id"] and {
        "id": row["scan_id"],
        "status": row["scan_status"],
        "started_at": row["scan_started_at"],
        "finished_at": row["scan_finished_at"],
        "files": row["files_seen"],
        "bytes": row["bytes_seen"],
        **{what: row[f"files_{what}"] for what in ("new", "changed", "moved", "missing")},
        "errors": row["error_count"],
        "error_code": row["scan_error_code"],
        "error_message": row["scan_error_message"],
    }
    shown["job"] = row["job_id"] and {
        field: row[f"job_{field}"]
        for field in ("id", "kind", "status", "progress", "processed_items", "total_items")
    }
    return shown


def _print_one(row: Record) -> None:
    output.print_facts(
        [
            ("library", row["name"]),
            ("path", row["path"]),
            ("files", f"{row['files']:,}"),
            ("size", decimal(row["bytes"])),
            ("missing", f"{row['missing']:,}"),
            ("to hash", f"{row['to_hash']:,}"),
            ("hash errors", f"{row['hash_errors']:,}"),
            ("scanned", output.age(row["now"], row["last_scanned_at"]) or "never"),
            ("last scan", _scan(row)),
            ("work", _work(row)),
        ]
    )


def _scan(row: Record) -> str | None:
    if row["scan_id"] is None:
        return None
    counts = ", ".join(f"{row[f'files_{what}']:,} {what}" for what in ("new", "changed", "moved", "missing"))
    why = f": {row['scan_error_code']} {row['scan_error_message'] or ''}" if row["scan_error_code"] else ""
    return f"{row['scan_status']}{why}; {counts}, {row['error_count']:,} errors"


def _work(row: Record) -> str:
    if row["job_id"] is None:
        return ""
    return f"{row['job_kind']} {row['job_status']}, {row['job_progress']:.0%}"
