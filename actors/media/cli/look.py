"""`tenure media show`, `replay`, `health`, `gc`: what there is, how it came about, and what may go."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer
from rich.filesize import decimal

from actors.media.cli import inputs
from actors.media.health import check_health, is_healthy
from supervisor.cli import output, session
from supervisor.cli.session import Json
from supervisor.errors import BadInput, NotFound
from supervisor.store import Record, Store
from supervisor.stored_json import readable

MOST: Final = 1000


class NoMedia(NotFound):
    """no {kind} {name}"""

    hint = "`tenure media show --workspace W --entity TYPE:ID` lists what an entity has"


def show(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[REF or HASH]", help="A ref, or a content and who uses it.", show_default=False
        ),
    ] = None,
    workspace: Annotated[str | None, typer.Option(metavar="W", show_default=False)] = None,
    entity: Annotated[str | None, typer.Option(metavar="TYPE:ID", show_default=False)] = None,
    role: Annotated[str | None, typer.Option(metavar="R", help="Only this role.", show_default=False)] = None,
    as_json: Json = False,
) -> int:
    """Show what an entity has, or a ref, or a content.

    Examples:

    - `tenure media show --workspace w1 --entity post:7`
    - `tenure media show 3`
    """
    if what is not None and workspace is entity is role is None:
        return (
            _show_ref(int(what), as_json=as_json)
            if what.isdecimal() and len(what) < 19
            else _show_blob(inputs.hash_of(what), as_json=as_json)
        )
    if what is not None or entity is None:
        raise BadInput(what="name one: a REF, a HASH, or an --entity, with its --workspace or in all of them")
    slot = (workspace and inputs.name(workspace, "the workspace"), *inputs.entity(entity), role)
    rows = session.run(lambda store: store.rows("list_refs", *slot, "", -1, 0, MOST))
    _print_refs(rows, as_json=as_json)
    return 0


def _show_ref(ref: int, *, as_json: bool) -> int:
    row = session.run(lambda store: store.row("read_ref", ref))
    if row is None:
        raise NoMedia(kind="ref", name=ref)
    if as_json:
        output.print_json(dict(row))
    else:
        output.print_facts((name, None if value is None else str(value)) for name, value in row.items())
    return 0


def _show_blob(hash_: str, *, as_json: bool) -> int:
    async def work(store: Store) -> tuple[Record | None, Sequence[Record]]:
        return await store.row("read_blob", hash_), await store.rows("list_blob_refs", hash_, MOST)

    blob, refs = session.run(work)
    if blob is None:
        raise NoMedia(kind="blob", name=hash_)
    if as_json:
        output.print_json({**blob, "refs": [dict(ref) for ref in refs]})
        return 0
    output.print_facts((name, None if value is None else str(value)) for name, value in blob.items())
    _print_refs(refs, as_json=False)
    return 0


def _print_refs(rows: Sequence[Record], *, as_json: bool) -> None:
    if as_json:
        output.print_json({"refs": [dict(row) for row in rows]})
        return
    output.print_table(
        ["REF", "ENTITY", "ROLE", "POSITION", "TYPE", "SIZE", "CONTENT", "ENDED"],
        (
            [
                row["id"],
                f"{row['entity_type']}:{row['entity_id']}",
                row["role"],
                row["position"],
                row["mime_type"],
                decimal(row["file_size"]),
                row["blob_hash"],
                str(row["deleted_at"] or ""),
            ]
            for row in rows
        ),
        empty="no refs",
    )


def replay(
    request_id: Annotated[
        str, typer.Argument(metavar="REQUEST_ID", help="The id of a write.", show_default=False)
    ],
    as_json: Json = False,
) -> int:
    """Tell what was asked, decided, done and answered under a request's id, in its order.

    Example: `tenure media replay 0b1e4f7a-2f38-4f0c-9d53-6a3e4f0a9b11`
    """
    wanted = inputs.request_id(request_id)
    rows = session.run(lambda store: store.rows("list_request_events", wanted))
    if not rows:
        raise NoMedia(kind="request", name=wanted)
    events: list[dict[str, Any]] = [{**row, "payload": readable(row["payload"])} for row in rows]
    if as_json:
        output.print_json({"request_id": wanted, "events": events})
        return 0
    output.say(_author(events[0]))
    output.print_table(
        ["AT", "EVENT", "WHAT", "REF", "CONTENT", "WHY"],
        (
            [str(e["created_at"]), e["event_type"], _what(e), e["ref_id"], e["blob_hash"], _why(e)]
            for e in events
        ),
        empty="",
    )
    return 0


def _author(event: dict[str, Any]) -> str:
    by, actor = event["principal"] or event["actor"], event["actor"]
    return f"by {by}" if by == actor else f"by {by} on behalf of {actor}"


def _what(event: dict[str, Any]) -> str:
    payload = event["payload"]
    written = f"{payload.get('action', '')} {payload.get('target_table', '')}".strip()
    return event["decision"] or event["result"] or written or payload.get("asked", {}).get("action", "")


def _why(event: dict[str, Any]) -> str | None:
    return event["error_code"] and f"{event['error_code']}: {event['error_message']}"


def health(as_json: Json = False) -> int:
    """Check slots, refs and events. Exits 1 when a check fails.

    Example: `tenure media health`
    """
    checks = session.run(check_health)
    if as_json:
        output.print_json({"ok": is_healthy(checks), "checks": [asdict(check) for check in checks]})
    else:
        output.print_table(
            ["CHECK", "RESULT", "ROWS", "WHAT TO DO"],
            (
                [check.name, check.result, check.rows, check.advice if check.result == "fail" else ""]
                for check in checks
            ),
            empty="",
        )
    return 0 if is_healthy(checks) else 1


def gc(
    execute: Annotated[
        bool, typer.Option("--execute", help="Queue what is due now; needs the setting media_gc_execute.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many are listed.")] = 50,
    as_json: Json = False,
) -> int:
    """Show the contents that nobody uses, and which of them may go. Without --execute nothing is changed.

    Nothing is ever removed before `tenure setting set media_gc_execute true`; then the leader queues what is
    due by itself. Exits 4 for --execute without that setting.

    Example: `tenure media gc --execute`
    """

    async def work(store: Store) -> tuple[int | None, Record, Sequence[Record]]:
        queued = await store.value("request_collection", session.actor(), timeout=60) if execute else None
        report = await store.row("read_collection_report", timeout=30)
        assert report is not None  # noqa: S101  the settings are always there
        return queued, report, await store.rows("list_collection_candidates", limit)

    queued, report, rows = session.run(work)
    if as_json:
        facts = {name: value for name, value in report.items() if name != "now"}
        output.print_json({**facts, "queued": queued, "candidates": [dict(row) for row in rows]})
        return 0
    output.say(
        f"{report['blobs']} contents ({decimal(report['bytes'])}) are used by nobody, "
        f"{report['due_blobs']} of them ({decimal(report['due_bytes'])}) long enough to go"
    )
    if queued is not None:
        output.say(f"{queued} queued")
    elif not report["execute"]:
        output.say("nothing is removed: `tenure setting set media_gc_execute true` lets them go")
    output.print_table(
        ["CONTENT", "TYPE", "SIZE", "UNUSED", "ENDED REFS"],
        (
            [
                row["file_hash"],
                row["mime_type"],
                decimal(row["file_size"]),
                output.age(report["now"], row["unreferenced_since"]),
                row["ended_refs"],
            ]
            for row in rows
        ),
        empty="",
    )
    return 0


def add_to(app: typer.Typer) -> None:
    for command in (show, replay, health, gc):
        app.command()(command)
