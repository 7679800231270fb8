"""What this domain refuses with, and what it means here."""

from typing import Any, ClassVar, Final

from actors.capture.submit import PictureTooLarge
from supervisor.api import refusals
from supervisor.artifacts import ArtifactMissing, NoSpace, QuotaExceeded

_MEANINGS: Final[refusals.Meanings] = {
    **refusals.MEANINGS,
    409: ("Not as things stand: the session is being read, or its id was used for another", "CONFLICT"),
    413: ("The body or a picture is too large", "TOO_LARGE"),
    507: ("There is no room for the pictures", "NO_SPACE"),
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return refusals.documented(statuses, _MEANINGS)


class Route(refusals.CodedRoute):
    statuses: ClassVar = {
        PictureTooLarge: (413, "TOO_LARGE"),
        **refusals.STATUSES,
        ArtifactMissing: (404, "PICTURE_MISSING"),
        NoSpace: (507, "NO_SPACE"),
        QuotaExceeded: (507, "QUOTA_EXCEEDED"),
    }
