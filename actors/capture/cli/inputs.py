"""What people type at `tenure capture` and `tenure schedule`, checked before anything is changed."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Final
from uuid import UUID

import typer

from actors.capture.submit import Picture
from supervisor.cli.inputs import BIGINT
from supervisor.errors import BadInput

INTEGER: Final = 2**31 - 1

User = Annotated[
    int, typer.Option(min=-BIGINT, max=BIGINT, metavar="N", help="Whose schedule it is.", show_default=False)
]
SessionId = Annotated[
    str, typer.Argument(metavar="SESSION", help="As `capture list` shows it.", show_default=False)
]
Day = Annotated[str, typer.Option("--date", metavar="YYYY-MM-DD", help="Which day.", show_default=False)]


class BadPicture(BadInput):
    """{path} cannot be read: {what}"""


@contextmanager
def opened(paths: Sequence[Path]) -> Iterator[Sequence[Picture]]:
    """Regular files, and nothing else: a pipe could never be read twice."""
    with ExitStack() as stack:
        pictures = []
        for path in paths:
            try:
                file = stack.enter_context(path.open("rb"))
                is_regular = S_ISREG(path.stat().st_mode)
            except (OSError, ValueError) as error:
                raise BadPicture(path=str(path), what=getattr(error, "strerror", None) or error) from None
            if not is_regular:
                raise BadPicture(path=str(path), what="it is no regular file")
            pictures.append(Picture(str(path), file))
        yield pictures


def session_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise BadInput(
            what=f"{text!r} is no session: it is a UUID, as `tenure capture list` shows it"
        ) from None


def day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadInput(what=f"{text!r} is no date; write it as 2026-11-16") from None
