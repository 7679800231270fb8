"""`tenure capture`: submit pictures, and see what came of them."""

from pathlib import Path
from typing import Annotated, Any, Final
from uuid import UUID

import anyio
import typer

from actors.capture.cli import inputs
from actors.capture.cli.schedule import print_entries
from actors.capture.submit import submit as send
from actors.capture.views import read_session
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.cli import output, session
from supervisor.cli.inputs import encodable
from supervisor.cli.session import Json
from supervisor.config import load_settings
from supervisor.errors import BadInput
from supervisor.store import Store

ENDED: Final = ("done", "failed")
STATES: Final = ("pending", "processing", *ENDED)
LOOK_SECONDS: Final = 0.3
LOOK_SECONDS_MOST: Final = 3.0


def submit(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="PICTURE...", help="In the order in which they are read.", show_default=False),
    ],
    *,
    user: inputs.User,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until it has been read; exit 1 when it failed.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, help="With --wait: give up after so many seconds.", show_default="never"),
    ] = None,
    session_id: Annotated[
        str | None,
        typer.Option(
            metavar="UUID", help="Sent again under it, the session is the same.", show_default="a new one"
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Submit pictures of one schedule; a replica reads them and makes the next version of that day.

    Several screenshots of one long list may overlap: what stands in two of them is read once. The date is
    the one in the pictures, else the day on which they were submitted.

    Example: `tenure capture submit --user 7 morning.png evening.png --wait`
    """
    wanted = inputs.session_id(session_id) if session_id is not None else None
    settings = load_settings()

    async def work(store: Store) -> dict[str, Any]:
        artifacts = open_artifacts(load_artifact_settings(), settings.state_dir)
        try:
            with inputs.opened(files) as pictures:
                made, _ = await send(store, artifacts, session.actor(), user, pictures, wanted)
        finally:
            await artifacts.aclose()
        return await _look(store, made, wait=wait, timeout=timeout)

    return _tell(session.run(work, settings), as_json=as_json, waited=wait)


def show(
    session_id: inputs.SessionId,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until it has been read; exit 1 when it failed.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, help="With --wait: give up after so many seconds.", show_default="never"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Show a session: its state, why it failed, or the version that it made.

    Example: `tenure capture show 0d1e... --wait --timeout 60`
    """
    wanted = inputs.session_id(session_id)
    shown = session.run(lambda store: _look(store, wanted, wait=wait, timeout=timeout))
    return _tell(shown, as_json=as_json, waited=wait)


def list_(
    user: Annotated[
        int | None, typer.Option(metavar="N", help="Only of this user.", show_default=False)
    ] = None,
    state: Annotated[
        str | None, typer.Option(help=f"Only in this state: {', '.join(STATES)}.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    as_json: Json = False,
) -> int:
    """List sessions, newest first.

    Example: `tenure capture list --state failed`
    """
    if state is not None and state not in STATES:
        raise BadInput(what=f"{state!r} is no state; states are {', '.join(STATES)}")
    rows = session.run(lambda store: store.rows("list_captures", user, state, None, None, limit))
    if as_json:
        output.print_json([{name: value for name, value in row.items() if name != "now"} for row in rows])
        return 0
    output.print_table(
        ["SESSION", "USER", "STATE", "SUBMITTED", "DAY", "VERSION", "ERROR"],
        (
            [
                row["session_id"],
                row["user_id"],
                output.state(row["state"]),
                output.age(row["now"], row["created_at"]),
                row["schedule_date"],
                row["version"],
                row["error"],
            ]
            for row in rows
        ),
        empty="no pictures were submitted yet: `tenure capture submit --user 7 PICTURE`",
    )
    return 0


def refuse(
    session_id: inputs.SessionId,
    reason: Annotated[str, typer.Option(help="For whoever submitted it.", show_default=False)],
    as_json: Json = False,
) -> int:
    """Say that a session that still waits is not to be read. Exits 4 when it no longer waits.

    Example: `tenure capture refuse 0d1e... --reason "the wrong person's calendar"`
    """
    wanted, why = inputs.session_id(session_id), encodable(reason, "the reason")

    async def work(store: Store) -> dict[str, Any]:
        await store.value("refuse_capture", session.actor(), wanted, why)
        return await read_session(store, wanted)

    return _tell(session.run(work), as_json=as_json, waited=False)


async def _look(store: Store, wanted: UUID, *, wait: bool, timeout: float | None) -> dict[str, Any]:
    shown = await read_session(store, wanted)
    pause = LOOK_SECONDS
    with anyio.move_on_after(timeout):
        while wait and shown["state"] not in ENDED:
            await anyio.sleep(pause)
            pause = min(pause * 1.3, LOOK_SECONDS_MOST)
            shown = await read_session(store, wanted)
    return shown


def _tell(shown: dict[str, Any], *, as_json: bool, waited: bool) -> int:
    if as_json:
        output.print_json(shown)
    else:
        output.say(f"session {shown['session_id']} ", output.state(shown["state"]))
        if shown["error"]:
            output.say(shown["error"])
        if shown["payload"]:
            output.say(f"version {shown['version']} of {shown['schedule_date']} for user {shown['user_id']}")
            print_entries(shown["payload"])
    return 1 if waited and shown["state"] != "done" else 0


def add_to(app: typer.Typer) -> None:
    app.command("submit")(submit)
    app.command("show")(show)
    app.command("list")(list_)
    app.command("refuse")(refuse)
