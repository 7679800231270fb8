"""`tenure identity`: who people are, whatever a repository calls them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from actors.scm.cli.inputs import plain
from supervisor.cli import output, session
from supervisor.cli.session import Json
from supervisor.store import Store

if TYPE_CHECKING:
    from actors.scm.identity import Files

REMAP_SECONDS: Final = 90.0

app = typer.Typer(no_args_is_help=True, help="Identity: people, and their names in repositories.")


@app.command()
def load(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A checkout, with .agentx/users in it.", show_default=False),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only read and judge the files.")] = False,
    as_json: Json = False,
) -> int:
    """Read `.agentx/users/*.yaml` and `.agentx/roles/<user_id>/*` into the database.

    All files are judged first: a wrong one is named, and nothing is changed. `tenure identity remap` then
    finds the authors of what was read before.

    Example: `tenure identity load .`
    """
    from actors.scm.identity import load as load_all  # noqa: PLC0415  for this command alone
    from actors.scm.identity import read_directory  # noqa: PLC0415

    files: Files = read_directory(directory)
    if not dry_run:
        session.run(lambda store: load_all(store, session.actor(), files))
    if as_json:
        people = [{"user_id": one.user_id, "source": one.source} for one in files.people]
        roles = [
            {"user_id": one.user_id, "role": one.role, "labels": list(one.labels), "source": one.source}
            for one in files.roles
        ]
        output.print_json({"dry_run": dry_run, "users": people, "roles": roles})
    else:
        verb = "read (nothing was changed)" if dry_run else "loaded"
        output.say(f"{verb}: {len(files.people)} people, {len(files.roles)} roles")
    return 0


@app.command("list")
def list_(as_json: Json = False) -> int:
    """List the people, their names in repositories and their roles.

    What `~/.agentx/user.config.yaml` says is shown beside them; it is never stored and never decides.

    Example: `tenure identity list --json`
    """
    from actors.scm.identity import personal_override  # noqa: PLC0415

    override = personal_override(Path.home())

    async def work(store: Store) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        users = [plain(row) for row in await store.rows("list_users")]
        return users, [dict(row) for row in await store.rows("list_role_profiles")]

    users, roles = session.run(work)
    if as_json:
        output.print_json({"users": users, "roles": roles, "override": override})
        return 0
    output.print_table(
        ["USER", "NAME", "ACTIVE", "ACCOUNTS", "ROLES"],
        (
            [
                user["user_id"],
                user["display_name"],
                "yes" if user["is_active"] else "no",
                _accounts(user["accounts"]),
                ", ".join(role["role"] for role in roles if role["user_id"] == user["user_id"]),
            ]
            for user in users
        ),
        empty="nobody yet: `tenure identity load --help`",
    )
    if override is not None:
        output.say(f"for you alone, and not stored: {', '.join(f'{n}={v}' for n, v in override.items())}")
    return 0


@app.command()
def remap(as_json: Json = False) -> int:
    """Find the authors of revisions, commits and merge requests that were read before they were known.

    Example: `tenure identity remap`
    """
    changed = session.run(lambda store: store.value("remap_authors", session.actor(), timeout=REMAP_SECONDS))
    if as_json:
        output.print_json({"changed": changed})
    else:
        output.say(f"{changed:,} rows have another author now")
    return 0


def _accounts(accounts: Sequence[dict[str, str]]) -> str:
    return ", ".join(f"{one['type']}:{one['name']}" for one in accounts)
