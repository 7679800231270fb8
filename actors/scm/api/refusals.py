"""What this domain refuses with, and what it means here."""

from typing import Any, ClassVar, Final

from supervisor.api import refusals
from supervisor.artifacts import ArtifactError, ArtifactMissing, ChecksumMismatch, Elsewhere, TooLarge

_MEANINGS: Final[refusals.Meanings] = {
    **refusals.MEANINGS,
    404: ("There is no such thing, or its content is not in the store of this replica", "NOT_FOUND"),
    409: ("The content is not what was recorded; none of it is handed out", "CHECKSUM_MISMATCH"),
    413: ("The body or the content is too large", "TOO_LARGE"),
    503: ("The database or the artifact store did not answer; the same request can be sent again", ""),
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return refusals.documented(statuses, _MEANINGS)


class Route(refusals.CodedRoute):
    statuses: ClassVar = {
        **refusals.STATUSES,
        ChecksumMismatch: (409, "CHECKSUM_MISMATCH"),
        ArtifactMissing: (404, "CONTENT_MISSING"),
        Elsewhere: (404, "ELSEWHERE"),
        TooLarge: (413, "TOO_LARGE"),
        ArtifactError: (503, "ARTIFACT_ERROR"),
    }
