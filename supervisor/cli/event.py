"""`tenure event`: what happened elsewhere, and which runs came of it."""

import json
from typing import Annotated, Final

import typer

from supervisor.cli import output, session
from supervisor.cli.inputs import BIGINT, check_name, encodable, read_payload
from supervisor.cli.options import Payload
from supervisor.cli.session import Json
from supervisor.errors import BadInput
from supervisor.stored_json import readable

EVENT_BYTES: Final = 64 * 1024
KEY_CHARACTERS: Final = 200
KIND: Final = "an event's type"

app = typer.Typer(no_args_is_help=True, help="Events: each starts every job that waits for its type.")


@app.command()
def emit(
    event_type: Annotated[
        str, typer.Argument(metavar="TYPE", help="What happened, such as order.paid.", show_default=False)
    ],
    dedupe_key: Annotated[
        str | None, typer.Option(help="The same key again is the same event.", show_default=False)
    ] = None,
    payload: Payload = None,
    as_json: Json = False,
) -> int:
    """Tell that something happened. Jobs with `--event TYPE` get a run each, with the event in its payload.

    Examples:

    - `tenure event emit order.paid --dedupe-key order-4711 --payload '{"order": 4711}' --json`
    - `tenure event emit upload --payload @upload.json`

    An application calls `supervisor.emit(type, payload, dedupe_key)` inside its own transaction.
    """
    check_name(event_type, KIND)
    given = json.dumps(read_payload(payload) if payload is not None else {})
    if len(given.encode()) > EVENT_BYTES:
        raise BadInput(what=f"an event's payload has at most {EVENT_BYTES} bytes")
    if dedupe_key is not None and not 1 <= len(encodable(dedupe_key, "the key")) <= KEY_CHARACTERS:
        raise BadInput(what=f"a key has 1 to {KEY_CHARACTERS} characters")
    row = session.run(lambda store: store.row("post_event", session.actor(), event_type, given, dedupe_key))
    assert row is not None  # noqa: S101  it answers always
    if as_json:
        output.print_json(dict(row))
    else:
        output.say(f"event {row['id']}{'' if row['created'] else ' (emitted earlier with this key)'}")
    return 0


@app.command("list")
def list_(
    event_type: Annotated[
        str | None, typer.Option("--type", help="Only of this type.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    before: Annotated[
        int | None,
        typer.Option(min=1, max=BIGINT, help="Only with a smaller id: the next page.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> int:
    """List events, newest first, with how many runs came of each.

    Example: `tenure event list --type order.paid --limit 5`
    """
    if event_type is not None:
        check_name(event_type, KIND)
    rows = session.run(lambda store: store.rows("list_events", event_type, before, limit))
    if as_json:
        output.print_json(
            [
                {
                    **{name: value for name, value in row.items() if name != "now"},
                    "payload": readable(row["payload"]),
                }
                for row in rows
            ]
        )
        return 0
    output.print_table(
        ["EVENT", "TYPE", "EMITTED", "RUNS", "KEY", "PAYLOAD"],
        (
            [
                row["id"],
                row["type"],
                output.age(row["now"], row["created_at"]),
                "waits" if row["processed_at"] is None else row["runs"],
                row["dedupe_key"],
                row["payload"],
            ]
            for row in rows
        ),
        empty="no events",
    )
    if len(rows) == limit:
        output.say(f"more: --before {rows[-1]['id']}")
    return 0
