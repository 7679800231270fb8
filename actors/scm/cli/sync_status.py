"""`tenure sync status`, `list` and `show`: where syncs stand, and what they went through."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from actors.scm.cli.follow import figures
from actors.scm.cli.inputs import SourceType, check_repo, plain
from actors.scm.cli.repo import found_repo
from supervisor.cli import output, session
from supervisor.cli.inputs import encodable
from supervisor.cli.session import Json
from supervisor.errors import NotFound
from supervisor.store import Record, Store

Status = Literal["pending", "running", "completed", "failed", "retrying", "exhausted", "cancelled"]
OptionalRepo = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="One repository.", show_default="all")
]


def status(name: OptionalRepo = None, as_json: Json = False) -> int:
    """Show every sync: its schedule, its cursor, how far it is behind and how the last run ended.

    LAG is the time between the newest the source had, when it was last looked at, and the cursor.

    Example: `tenure sync status --json | jq '.[] | select(.lag_seconds > 3600)'`
    """

    async def work(store: Store) -> list[Record]:
        if name is not None:
            await found_repo(store, check_repo(name))
        return list(await store.rows("list_sync_standing", name))

    rows = session.run(work)
    if as_json:
        output.print_json([plain(row) for row in rows])
        return 0
    output.print_table(
        ["REPOSITORY", "SOURCE", "STATUS", "WHEN", "CURSOR", "AGE", "LAG", "LAST RUN", "ENDED", "FIGURES"],
        (_standing(plain(row), row["now"]) for row in rows),
        empty="no syncs yet: `tenure repo add --help`",
    )
    return 0


def list_(
    name: OptionalRepo = None,
    source: Annotated[SourceType | None, typer.Option(help="One source.", show_default="all")] = None,
    in_status: Annotated[
        Status | None, typer.Option("--status", help="Only those.", show_default="all")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    as_json: Json = False,
) -> int:
    """List runs of syncs, the newest first.

    Example: `tenure sync list --status failed`
    """
    if name is not None:
        check_repo(name)
    rows = session.run(lambda store: store.rows("list_sync_runs", name, source, in_status, None, None, limit))
    if as_json:
        output.print_json([plain(row) for row in rows])
        return 0
    output.print_table(
        [
            "RUN",
            "REPOSITORY",
            "SOURCE",
            "MODE",
            "STATUS",
            "STARTED",
            "INSERTED",
            "UPDATED",
            "SKIPPED",
            "ERROR",
        ],
        (_run(plain(row)) for row in rows),
        empty="no syncs yet: `tenure sync run --help`",
    )
    return 0


def show(
    run_id: Annotated[
        str, typer.Argument(metavar="RUN_ID", help="Such as sync-20300131-001.", show_default=False)
    ],
    as_json: Json = False,
) -> int:
    """Show one run of a sync and the states it went through. Exits 5 when there is none.

    Example: `tenure sync show 7`
    """
    encodable(run_id, "the id")

    async def work(store: Store) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        row = await store.row("read_sync_run", run_id)
        if row is None:
            raise NotFound(kind="sync", name=run_id)
        return plain(row), [dict(move) for move in await store.rows("list_sync_moves", run_id)]

    row, moves = session.run(work)
    if as_json:
        output.print_json(row | {"moves": moves})
        return 0
    output.print_facts(
        [
            ("run", row["run_id"]),
            ("sync", f"{row['source_type']} of {row['repo']}, {row['mode']}"),
            ("asked by", row["requested_by"]),
            ("standing", figures(row)),
            ("cursor", _cursors(row)),
            ("worker", row["worker_id"]),
            ("log item", row["item_id"]),
        ]
    )
    output.print_table(
        ["AT", "STATUS", "ATTEMPT", "WORKER", "ERROR"],
        (
            [
                f"{move['at']:%Y-%m-%d %H:%M:%S}",
                move["to_status"],
                move["attempt"],
                move["worker_id"],
                move["error_code"],
            ]
            for move in moves
        ),
        empty="it has not moved yet",
    )
    return 0


def when(row: Mapping[str, Any]) -> str:
    """What starts it."""
    config = row["config_json"]
    if row["cron_expr"]:
        return str(row["cron_expr"])
    if config.get("auto"):
        return f"every {output.duration(config.get('interval_seconds', 300))}"
    return "by hand"


def _standing(row: Mapping[str, Any], now: datetime) -> list[output.Cell]:
    age, lag = row["cursor_age_seconds"], row["lag_seconds"]
    error = (row["last_run_error_json"] or {}).get("code")
    stats = row["last_run_stats_json"] or {}
    counts = ", ".join(f"{stats[what]:,} {what}" for what in ("inserted", "updated") if stats.get(what))
    return [
        row["repo"],
        row["source_type"],
        row["status"],
        when(row),
        _position(row["cursor"]),
        "" if age is None else output.duration(max(0.0, age)),
        "" if lag is None else output.duration(max(0.0, lag)),
        f"{row['last_run_id'] or ''} {row['last_run_status'] or ''}".strip(),
        output.age(now, row["last_run_finished_at"]),
        counts if row["last_run_status"] == "completed" or not error else error,
    ]


def _run(row: Mapping[str, Any]) -> list[output.Cell]:
    stats = row["stats_json"] or {}
    return [
        row["run_id"],
        row["repo"],
        row["source_type"],
        row["mode"],
        row["status"],
        f"{row['started_at']:%Y-%m-%d %H:%M:%S}",
        *(f"{stats.get(what, 0):,}" for what in ("inserted", "updated", "skipped")),
        (row["error_json"] or {}).get("code") if row["status"] != "completed" else None,
    ]


def _position(cursor: Any) -> str:
    """Both forms that a cursor was ever written in."""
    if not isinstance(cursor, Mapping):
        return ""
    found = next((cursor[n] for n in ("watermark", "last_rev", "last_commit_ts") if n in cursor), None)
    return "" if found is None else str(found)


def _cursors(row: Mapping[str, Any]) -> str:
    begin = "the beginning" if row["watermark_start"] is None else row["watermark_start"]
    reached = row["watermark_end"] if row["watermark_end"] is not None else row["watermark"]
    return f"from {begin}" + ("" if reached is None else f" to {reached}")
