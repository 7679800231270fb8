"""`tenure token`: who may use the API and the console from elsewhere. Changes are audited."""

import re
from typing import Annotated, Final, Literal

import typer

from supervisor.cli import output, session
from supervisor.cli.inputs import encodable
from supervisor.cli.session import Json
from supervisor.errors import BadInput
from supervisor.store import Record

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,62}")
NAME_RULE: Final = "1 to 63 letters, digits and . _ -, of which the first is a letter"
UNITS: Final = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
LEAST_SECONDS: Final = 60
MOST_SECONDS: Final = 3650 * 86400
KEPT: Final = (
    "id",
    "name",
    "role",
    "created_by",
    "created_at",
    "expires_at",
    "last_used_at",
    "revoked_by",
    "revoked_at",
)

app = typer.Typer(no_args_is_help=True, help="Tokens for the API and the console.")


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what will use it.", show_default=False)],
    role: Annotated[
        Literal["view", "operate", "admin"],
        typer.Option(
            help="view reads, operate also changes, admin also changes who and how.", show_default=False
        ),
    ],
    expires_in: Annotated[
        str | None, typer.Option(help="Such as 12h, 90d or 4w.", show_default="never")
    ] = None,
    as_json: Json = False,
) -> int:
    """Make a token and print it. It is printed this once: the database keeps a hash only.

    Exits 4 when there is a token of this name that is not revoked.

    Examples:

    - `tenure token create grafana --role view --expires-in 90d`
    - `curl -H "Authorization: Bearer tnr_..." http://replica:8080/status`
    """
    # Loaded here: the other commands start faster without the web server.
    from supervisor.api.tokens import new_secret, shown  # noqa: PLC0415

    if NAME.fullmatch(name) is None:
        raise BadInput(what=f"{name!r} cannot be a token's name: {NAME_RULE}")
    seconds = None if expires_in is None else parse_span(expires_in)
    secret, encoded = new_secret()
    row = session.run(lambda store: store.row("create_token", session.actor(), name, role, encoded, seconds))
    assert row is not None  # noqa: S101  the function answers or raises
    token = shown(row["id"], secret)
    if as_json:
        made = {"id": row["id"], "name": name, "role": role, "expires_at": row["expires_at"]}
        output.print_json({**made, "token": token})
    else:
        output.say(token)
        output.say("it is not shown again; send it as `Authorization: Bearer ...`, or type it at /login")
    return 0


@app.command("list")
def list_(as_json: Json = False) -> int:
    """List all tokens, without their secrets.

    Example: `tenure token list`
    """
    rows = session.run(lambda store: store.rows("list_tokens"))
    if as_json:
        output.print_json([{key: row[key] for key in KEPT} for row in rows])
        return 0
    output.print_table(
        ["ID", "NAME", "ROLE", "STATE", "CREATED", "BY", "EXPIRES", "LAST USED"],
        (
            [
                row["id"],
                row["name"],
                row["role"],
                state_of(row),
                output.age(row["now"], row["created_at"]),
                row["created_by"],
                output.age(row["now"], row["expires_at"]) or "never",
                output.age(row["now"], row["last_used_at"]) or "never",
            ]
            for row in rows
        ),
        empty="no tokens; `tenure token create NAME --role view` makes one",
    )
    return 0


@app.command()
def revoke(
    which: Annotated[str, typer.Argument(metavar="NAME|ID", help="From `token list`.", show_default=False)],
    as_json: Json = False,
) -> int:
    """End a token and every login made with it; replicas that just saw it follow within ten seconds.

    Exits 5 when there is no such token. Revoking it again changes nothing.

    Example: `tenure token revoke grafana`
    """
    encodable(which, "the name")
    row = session.run(lambda store: store.row("revoke_token", session.actor(), which))
    assert row is not None  # noqa: S101  the function answers or raises
    if as_json:
        output.print_json({key: row[key] for key in ("id", "name", "revoked")})
    elif row["revoked"]:
        output.say(f"token {row['name']} (id {row['id']}) is revoked")
    else:
        output.say(f"token {row['name']} (id {row['id']}) was revoked already")
    return 0


def parse_span(text: str) -> int:
    """Seconds, from a number and its unit."""
    found = re.fullmatch(r"([0-9]{1,9})([mhdw])", text)
    if found is None:
        raise BadInput(what=f"{text!r} is no span of time, such as 30m, 12h, 90d or 4w")
    seconds = int(found[1]) * UNITS[found[2]]
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise BadInput(what=f"{text!r} is not between 1m and 3650d")
    return seconds


def state_of(row: Record) -> str:
    if row["revoked_at"] is not None:
        return "revoked"
    return "expired" if row["expires_at"] is not None and row["expires_at"] <= row["now"] else "usable"
