"""`tenure media attach`, `move`, `detach`: each is one request, decided and written down as a whole.

Exit codes: 0 done, or found done; 1 it failed; 4 the rules reject it.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer
from anyio.to_thread import run_sync

from actors.media import write
from actors.media.cli import inputs
from actors.media.content import examine
from actors.media.shelf import open_shelf
from actors.media.upload import upload
from supervisor.cli import output, session
from supervisor.cli.session import Json
from supervisor.config import load_settings
from supervisor.store import Store

REJECTED, FAILED = 4, 1


def attach(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The content.", show_default=False)],
    *,
    workspace: inputs.Workspace,
    entity: inputs.Entity,
    role: Annotated[str, typer.Option(metavar="R", help="Such as cover or gallery.", show_default=False)],
    position: Annotated[int, typer.Option(min=-inputs.INTEGER, max=inputs.INTEGER, metavar="N")] = 0,
    request_id: inputs.RequestId = None,
    on_occupied: Annotated[
        Literal["replace", "reject"], typer.Option(help="When another one has the slot.")
    ] = "replace",
    actor: inputs.Actor = None,
    as_json: Json = False,
) -> int:
    """Put a file into a slot of an entity. Its type is read from its bytes, the same content is kept once.

    Example: `tenure media attach a.png --workspace w1 --entity post:7 --role cover --json`

    The same content in the slot already is answered with its ref. Exits 4 when a rule rejects it.
    """
    slot = write.Slot(
        inputs.name(workspace, "the workspace"),
        *inputs.entity(entity),
        inputs.name(role, "the role"),
        position,
    )
    wish = write.Request(
        inputs.request_id(request_id), "attach", _writer(actor), slot, on_occupied=on_occupied
    )
    settings = load_settings()

    async def work(store: Store) -> write.Answer:
        limit = await store.value("read_media_limit")
        artifacts = open_shelf(settings)
        try:
            with inputs.opened(file) as opened:
                content = await run_sync(examine, opened, limit)
                return await upload(artifacts, content, lambda facts: write.write(store, wish, facts))
        finally:
            await artifacts.aclose()

    return _tell(session.run(work, settings), as_json=as_json)


def move(
    ref: inputs.RefId,
    position: Annotated[
        int | None,
        typer.Option(
            min=-inputs.INTEGER, max=inputs.INTEGER, metavar="N", help="Where to.", show_default=False
        ),
    ] = None,
    role: Annotated[str | None, typer.Option(metavar="R", help="Another role.", show_default=False)] = None,
    entity: Annotated[
        str | None, typer.Option(metavar="TYPE:ID", help="Another entity.", show_default=False)
    ] = None,
    on_occupied: Annotated[
        Literal["swap", "replace", "reject"], typer.Option(help="When another one has the slot.")
    ] = "swap",
    request_id: inputs.RequestId = None,
    actor: inputs.Actor = None,
    as_json: Json = False,
) -> int:
    """Give a ref another slot of its workspace. Where one stands there the two change places.

    Example: `tenure media move 3 --position 1`
    """
    kind, key = inputs.entity(entity) if entity is not None else (None, None)
    slot = write.Slot(None, kind, key, role and inputs.name(role, "the role"), position)
    wish = write.Request(
        inputs.request_id(request_id), "move", _writer(actor), slot, ref, on_occupied=on_occupied
    )
    return _tell(session.run(lambda store: write.write(store, wish)), as_json=as_json)


def detach(
    ref: inputs.RefId,
    request_id: inputs.RequestId = None,
    actor: inputs.Actor = None,
    as_json: Json = False,
) -> int:
    """End a ref, and nothing else: its content stays, and so does every other ref.

    Example: `tenure media detach 3`
    """
    wish = write.Request(inputs.request_id(request_id), "detach", _writer(actor), ref=ref)
    return _tell(session.run(lambda store: write.write(store, wish)), as_json=as_json)


def _writer(given: str | None) -> write.Writer:
    """Whoever has the database's login may say who writes: that is role admin's."""
    named = None if given is None else inputs.name(given, "the actor")
    return write.Writer.of(session.actor(), is_admin=True, on_behalf_of=named)


def _tell(answer: write.Answer, *, as_json: bool) -> int:
    if as_json:
        names = ["decision", "result", "ref_id", "blob_hash", "request_id", "is_replay"]
        names += [] if answer.is_ok else ["error_code", "error_message"]
        output.print_json({name: getattr(answer, name) for name in names})
    elif answer.is_ok:
        output.say(f"{answer.decision} {answer.result}", f": ref {answer.ref_id}", f" of {answer.blob_hash}")
    if answer.is_ok:
        return 0
    facts = {"code": answer.error_code, "message": answer.error_message, "request_id": answer.request_id}
    if as_json:
        return REJECTED if answer.result == "REJECTED" else FAILED
    raise write.WriteRejected(**facts) if answer.result == "REJECTED" else write.WriteFailed(**facts)


def add_to(app: typer.Typer) -> None:
    for command in (attach, move, detach):
        app.command()(command)
