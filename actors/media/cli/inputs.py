"""What people type at `tenure media`, checked before anything is changed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import IO, Annotated, Final
from uuid import UUID, uuid4

import typer

from actors.media.shelf import HASH
from supervisor.cli.inputs import BIGINT, encodable
from supervisor.errors import BadInput

LONGEST: Final = 200
INTEGER: Final = 2**31 - 1

RefId = Annotated[
    int,
    typer.Argument(min=1, max=BIGINT, metavar="REF", help="As `media show` lists it.", show_default=False),
]
RequestId = Annotated[
    str | None,
    typer.Option(
        metavar="UUID", help="Sent again under it, the answer is the same.", show_default="a new one"
    ),
]
Workspace = Annotated[str, typer.Option(metavar="W", help="Whose it is.", show_default=False)]
Entity = Annotated[str, typer.Option(metavar="TYPE:ID", help="Such as post:7.", show_default=False)]
Actor = Annotated[str | None, typer.Option(help="On whose behalf.", show_default="you, as cli:NAME")]


class BadFile(BadInput):
    """{path} cannot be read: {what}"""


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A regular file, and nothing else: a pipe could never be read twice."""
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise BadFile(path=str(path), what=getattr(error, "strerror", None) or error) from None
    with file:
        if not S_ISREG(path.stat().st_mode):
            raise BadFile(path=str(path), what="it is no regular file")
        yield file


def request_id(text: str | None) -> UUID:
    if text is None:
        return uuid4()
    try:
        return UUID(text)
    except ValueError:
        raise BadInput(what=f"{text!r} is no UUID") from None


def name(text: str, what: str) -> str:
    if not 0 < len(encodable(text, what)) <= LONGEST:
        raise BadInput(what=f"{what} has 1 to {LONGEST} characters")
    return text


def entity(text: str) -> tuple[str, str]:
    kind, colon, key = text.partition(":")
    if not colon:
        raise BadInput(what=f"{text!r} is no entity: write TYPE:ID, as in post:7")
    return name(kind, "the type of an entity"), name(key, "the id of an entity")


def hash_of(text: str) -> str:
    if HASH.fullmatch(text.lower()) is None:
        raise BadInput(what=f"{text!r} is no hash: BLAKE3 has 64 digits from 0-9a-f")
    return text.lower()
