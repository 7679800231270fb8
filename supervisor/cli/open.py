"""`tenure open`: a link that logs a browser into the console."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from supervisor.cli import output
from supervisor.cli.session import Json
from supervisor.config import load_settings
from supervisor.errors import TenureError
from supervisor.login_codes import LIFETIME_SECONDS, LoginCodes
from supervisor.serving import addresses
from supervisor.state_dir import UnusableDirectory


class NothingServes(TenureError):
    """no `tenure up` of this user serves a console from {state_dir}"""

    hint = (
        "start one with `tenure up`, or name its directory with TENURE_STATE_DIR; one that listens beyond"
        " loopback without TENURE_API_TOKEN takes only tokens: `tenure token create`"
    )
    exit_code = 5


def open_(
    browser: Annotated[bool, typer.Option("--browser", help="Open it too, if there is a browser.")] = False,
    as_json: Json = False,
) -> int:
    """Print a link that logs a browser into the console, once and within 15 minutes.

    It is for the `tenure up` of TENURE_STATE_DIR that this user runs on this machine. Exits 5 when none runs.

    Examples:

    - `tenure open --browser`
    - `curl -H "Authorization: Bearer $(cat .tenure/token)" http://127.0.0.1:8080/status`   for programs
    """
    codes, link = _link(load_settings().state_dir)
    if as_json:
        output.print_json({"url": link, "expires_in_seconds": LIFETIME_SECONDS})
    else:
        output.say(link)
    if browser and not webbrowser.open(codes.page(link).absolute().as_uri()):
        output.note("no browser was found here: open the link in one")
    return 0


def _link(state: Path) -> tuple[LoginCodes, str]:
    codes = LoginCodes(state)
    try:
        found = addresses(state)
        if not found:
            raise NothingServes(state_dir=state)
        return codes, codes.link(found[0])
    except PermissionError as error:
        raise UnusableDirectory(path=state, what="it belongs to another user") from error
