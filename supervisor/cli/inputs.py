"""What people type, checked before anything is changed."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from supervisor.actor import Actor
from supervisor.errors import BadInput
from supervisor.jobspec import NAME, NAME_RULE, PAYLOAD_BYTES

BIGINT: Final = 2**63 - 1
_EXAMPLES: Final = {
    "the payload": '{"argv": ["sleep", "1"]}',
    "the arguments": '{"order": 4711}',
    "the parameters": '{"order": {"type": "integer", "required": true}}',
}

RunId = Annotated[
    int, typer.Argument(min=1, max=BIGINT, metavar="ID", help="The id of a run.", show_default=False)
]
JobName = Annotated[str, typer.Argument(metavar="NAME", help="The name of a job.", show_default=False)]


def check_name(name: str, what: str = "a job's name") -> str:
    if NAME.fullmatch(name) is None:
        raise BadInput(what=f"{name!r} cannot be {what}: {NAME_RULE}")
    return name


def encodable(text: str, what: str) -> str:
    """Bytes of an argument that are no UTF-8 arrive as surrogates, and NUL is stored nowhere."""
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise BadInput(what=f"{what} holds bytes that are not text")
    return text


def read_payload(text: str, what: str = "the payload") -> dict[str, Any]:
    """A JSON object: as it stands, from a file (@path) or from standard input (-)."""
    if text == "-":
        text = sys.stdin.read(PAYLOAD_BYTES * 8)
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise BadInput(what=f"{what} cannot be read from {text[1:]}: {error}") from error
    return parse_payload(text, what)


def parse_payload(text: str, what: str = "the payload") -> dict[str, Any]:
    try:
        payload = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise BadInput(what=f"{what} is not JSON: {reason}") from None
    if not isinstance(payload, dict):
        raise BadInput(what=f"{what} must be a JSON object, such as {_EXAMPLES[what]}")
    size = len(json.dumps(payload, ensure_ascii=False).encode(errors="surrogatepass"))
    if size > PAYLOAD_BYTES:
        raise BadInput(what=f"{what} has {size} bytes, over the limit of {PAYLOAD_BYTES}")
    return payload


def check_payload(domain: str, payload: Mapping[str, Any]) -> None:
    if faults := unsuited(run_actors(), domain, payload):
        raise BadInput(what="; ".join(faults))


def run_actors() -> Mapping[str, Actor]:
    """Those that work on runs, by domain."""
    from supervisor.wiring import actors  # noqa: PLC0415  loads every domain; most commands need none

    return {name: actor for name, actor in actors().items() if actor.lease is None}


def unsuited(known: Mapping[str, Actor], domain: str, payload: Mapping[str, Any]) -> Sequence[str]:
    """Ask the domain's actor, which knows what it can run."""
    if domain not in known:
        return [f"unknown domain {domain!r}; known are {', '.join(sorted(known))}"]
    if complaints := known[domain].check(payload):
        return [f"the payload does not suit {domain}: {'; '.join(complaints)}"]
    return []


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
