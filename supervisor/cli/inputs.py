"""What people type, checked before anything is changed."""

import json
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from supervisor.errors import BadInput

PAYLOAD_BYTES: Final = 256 * 1024
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}")
BIGINT: Final = 2**63 - 1

RunId = Annotated[
    int, typer.Argument(min=1, max=BIGINT, metavar="ID", help="The id of a run.", show_default=False)
]
JobName = Annotated[str, typer.Argument(metavar="NAME", help="The name of a job.", show_default=False)]


def check_name(name: str) -> str:
    if NAME.fullmatch(name) is None:
        raise BadInput(
            what=f"{name!r} cannot be a job's name: 1 to 200 letters, digits and . _ : / -,"
            " of which the first is a letter or a digit"
        )
    return name


def encodable(text: str, what: str) -> str:
    """Bytes of an argument that are no UTF-8 arrive as surrogates, and NUL is stored nowhere."""
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise BadInput(what=f"{what} holds bytes that are not text")
    return text


def read_payload(text: str) -> dict[str, Any]:
    """A JSON object: as it stands, from a file (@path) or from standard input (-)."""
    if text == "-":
        text = sys.stdin.read(PAYLOAD_BYTES * 8)
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise BadInput(what=f"the payload cannot be read from {text[1:]}: {error}") from error
    return parse_payload(text)


def parse_payload(text: str) -> dict[str, Any]:
    try:
        payload = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise BadInput(what=f"the payload is not JSON: {reason}") from None
    if not isinstance(payload, dict):
        raise BadInput(what='the payload must be a JSON object, such as {"argv": ["sleep", "1"]}')
    size = len(json.dumps(payload, ensure_ascii=False).encode(errors="surrogatepass"))
    if size > PAYLOAD_BYTES:
        raise BadInput(what=f"the payload has {size} bytes, over the limit of {PAYLOAD_BYTES}")
    return payload


def check_payload(domain: str, payload: Mapping[str, Any]) -> None:
    """Ask the domain's actor, which knows what it can run."""
    from supervisor.wiring import actors  # noqa: PLC0415  loads every domain; most commands need none

    known = actors()
    if domain not in known:
        raise BadInput(what=f"unknown domain {domain!r}; known are {', '.join(sorted(known))}")
    if complaints := known[domain].check(payload):
        raise BadInput(what=f"the payload does not suit {domain}: {'; '.join(complaints)}")


def parse_instant(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(what=f"{text!r} is no ISO 8601 time, such as 2030-01-31T09:00:00Z") from None
    if moment.tzinfo is None:
        raise BadInput(what=f"{text!r} has no offset: write 2030-01-31T09:00:00Z or ...+02:00")
    return moment


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
