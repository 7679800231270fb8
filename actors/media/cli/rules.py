"""`tenure media rules`, `role`, `rendition`, `writers`: what may stand where, and who may put it there."""

from typing import Annotated, Literal

import typer

from actors.media.cli import inputs
from actors.media.health import PRINCIPAL
from supervisor.cli import output, session
from supervisor.cli.session import Json
from supervisor.errors import BadInput
from supervisor.store import Store

Remove = Annotated[bool, typer.Option("--remove", help="Take it away instead.")]


def rules(as_json: Json = False) -> int:
    """Show the roles, the renditions and the workspaces that not everybody writes to.

    Example: `tenure media rules`
    """

    async def work(store: Store) -> dict[str, list[dict[str, object]]]:
        names = ("roles", "renditions", "writers")
        return {name: [dict(row) for row in await store.rows(f"list_media_{name}")] for name in names}

    found = session.run(work)
    if as_json:
        output.print_json(found)
        return 0
    for name, rows in found.items():
        columns = [column.upper() for column in rows[0]] if rows else []
        output.print_table(columns, ([_cell(v) for v in row.values()] for row in rows), empty=f"no {name}")
        output.say("")
    return 0


def role(
    name: Annotated[str, typer.Argument(metavar="ROLE", show_default=False)],
    types: Annotated[
        str, typer.Option(help="What it takes, such as image/*,video/mp4; * for everything.")
    ] = "*",
    max_position: Annotated[
        int | None,
        typer.Option(min=0, max=1_000_000, help="The last position.", show_default="media_max_position"),
    ] = None,
    may_replace: Annotated[
        bool, typer.Option("--replace/--no-replace", help="A new one takes the place of the old.")
    ] = True,
    rendered: Annotated[bool, typer.Option("--rendered", help="Its pictures get the renditions.")] = False,
    remove: Remove = False,
    as_json: Json = False,
) -> int:
    """Say what a role takes, in place of what was said before. Refs that are there stay.

    Example: `tenure media role poster --types image/jpeg,image/png --max-position 0 --rendered`
    """
    inputs.name(name, "the role")
    kinds = [kind.strip() for kind in types.split(",")]
    if remove:
        session.run(lambda store: store.value("remove_media_role", session.actor(), name))
    else:
        arguments = (session.actor(), name, max_position, kinds, may_replace, rendered)
        session.run(lambda store: store.value("save_media_role", *arguments))
    return _tell({"role": name, "removed": remove}, as_json=as_json)


def rendition(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    size: Annotated[int, typer.Option(min=16, max=4096, help="Pixels of its longer side, at most.")] = 320,
    format_: Annotated[Literal["webp", "jpeg"], typer.Option("--format")] = "webp",
    quality: Annotated[int, typer.Option(min=1, max=100)] = 80,
    remove: Remove = False,
    as_json: Json = False,
) -> int:
    """Say what is made of each picture from now on; with --remove those that were made are withdrawn.

    Example: `tenure media rendition large --size 1600 --format jpeg`
    """
    inputs.name(name, "the rendition")
    if remove:
        session.run(lambda store: store.value("remove_media_rendition", session.actor(), name))
    else:
        arguments = (session.actor(), name, size, format_, quality)
        session.run(lambda store: store.value("save_media_rendition", *arguments))
    return _tell({"rendition": name, "removed": remove}, as_json=as_json)


def writers(
    workspace: Annotated[str, typer.Argument(metavar="WORKSPACE", show_default=False)],
    named: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[token:NAME or NAME]...",
            help="Tokens that may write, and names on whose behalf.",
            show_default=False,
        ),
    ] = None,
    everybody: Annotated[bool, typer.Option("--everybody", help="Open it again.")] = False,
    as_json: Json = False,
) -> int:
    """Say who writes to a workspace: exactly these tokens and role admin, or everybody.

    Names that are no tokens bound on whose behalf is written; without any, that is left to whoever writes.
    A name alone lets nobody write.

    Example: `tenure media writers w1 token:shop user:7 user:8`
    """
    if bool(named) == everybody:
        raise BadInput(what="name one: the writers, or --everybody")
    inputs.name(workspace, "the workspace")
    names = [inputs.name(name, "a writer") for name in named or []]
    session.run(lambda store: store.value("save_media_writers", session.actor(), workspace, names))
    if names and not any(name.startswith(PRINCIPAL) for name in names):
        output.note(f"only role admin writes to {workspace} now: no token is named (token:NAME)")
    return _tell({"workspace": workspace, "writers": names or "everybody"}, as_json=as_json)


def _tell(facts: dict[str, object], *, as_json: bool) -> int:
    if as_json:
        output.print_json(facts)
    else:
        output.say("; ".join(f"{name}: {_cell(value)}" for name, value in facts.items()))
    return 0


def _cell(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def add_to(app: typer.Typer) -> None:
    for command in (rules, role, rendition, writers):
        app.command()(command)
