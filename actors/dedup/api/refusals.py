"""What this domain refuses with, and what it means here."""

from typing import Any, ClassVar, Final

from actors.dedup.trouble import FileTrouble
from supervisor.api import refusals
from supervisor.errors import QueueFull

_MEANINGS: Final[refusals.Meanings] = {
    **refusals.MEANINGS,
    422: (
        "The request does not fit; a cursor is INVALID_CURSOR, a group's key INVALID_GROUP_KEY",
        refusals.INVALID,
    ),
    429: ("The queue is full, or it is too early", "QUEUE_FULL"),
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return refusals.documented(statuses, _MEANINGS)


class Route(refusals.CodedRoute):
    statuses: ClassVar = {
        **refusals.STATUSES,
        FileTrouble: (422, refusals.INVALID),
        QueueFull: (429, "QUEUE_FULL"),
    }
