"""What this domain refuses with, and what it means here."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from fastapi import Response

from actors.media.content import ContentTooLarge
from actors.media.write import Answer
from supervisor.api import refusals
from supervisor.api.problem import problem
from supervisor.artifacts import ArtifactMissing, NoSpace, QuotaExceeded

FAILED: Final = "WRITE_FAILED"

# what the business rules say, in the words of HTTP; all others are 422
_REJECTED: Final[Mapping[str, int]] = {
    "NOT_PERMITTED": 403,
    "REF_UNKNOWN": 404,
    "BLOB_UNKNOWN": 404,
    "SLOT_OCCUPIED": 409,
    "SLOT_EMPTY": 409,
    "SLOT_CHANGED": 409,
    "TOO_LARGE": 413,
    "TYPE_NOT_ALLOWED": 415,
}
_MEANINGS: Final[refusals.Meanings] = {
    **refusals.MEANINGS,
    403: ("You may not write to that workspace, or not on behalf of this actor", "NOT_PERMITTED"),
    409: (
        "Not as things stand: the slot is taken or empty, or the request id was used for another write",
        "CONFLICT",
    ),
    413: ("The body or the content is too large", ""),
    415: ("The role does not take this type of content", "TYPE_NOT_ALLOWED"),
    422: ("The request does not fit, or a rule rejects it", refusals.INVALID),
    500: ("The write failed, and nothing of it was done", FAILED),
    507: ("There is no room for the content", "NO_SPACE"),
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return refusals.documented(statuses, _MEANINGS, ("request_id", "decision", "result"))


def refusal(answer: Answer) -> Response:
    """REJECTED is the client's affair (4xx), FAILED is ours. Both are written down under the request's id."""
    story: dict[str, Any] = {
        "request_id": str(answer.request_id),
        "decision": answer.decision,
        "result": answer.result,
        "is_replay": answer.is_replay,
    }
    code, why = answer.error_code or "", refusals.sendable(answer.error_message or "")
    if answer.result == "REJECTED":
        return problem(_REJECTED.get(code, 422), why or "rejected", code=code, **story)
    return problem(
        500, "the write failed, and nothing of it was done", f"{code}: {why}", code=FAILED, **story
    )


class Route(refusals.CodedRoute):
    statuses: ClassVar = {
        **refusals.STATUSES,
        ArtifactMissing: (404, "CONTENT_MISSING"),
        NoSpace: (507, "NO_SPACE"),
        QuotaExceeded: (507, "QUOTA_EXCEEDED"),
        ContentTooLarge: (413, "TOO_LARGE"),
    }
