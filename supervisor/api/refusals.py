"""Refusals of a domain's routes: problems with a `code` that programs can match, told in the OpenAPI."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from http import HTTPStatus
from typing import Any, ClassVar, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from supervisor.api.problem import problem
from supervisor.errors import BadInput, Conflict, NotFound, TenureError

PROBLEM_TYPE: Final = "application/problem+json"
INVALID: Final = "INVALID_INPUT"
MAX_TEXT: Final = 500
MAX_FAULTS: Final = 20

Statuses = Mapping[type[TenureError], tuple[int, str]]
Meanings = Mapping[int, tuple[str, str]]

STATUSES: Final[Statuses] = {
    BadInput: (422, INVALID),
    NotFound: (404, "NOT_FOUND"),
    Conflict: (409, "CONFLICT"),
}
MEANINGS: Final[Meanings] = {
    400: ("The request cannot be read", ""),
    401: ("The token is missing or wrong", ""),
    403: ("The role is not enough, or the form is not ours", ""),
    404: ("There is no such thing", "NOT_FOUND"),
    409: ("Not as things stand", "CONFLICT"),
    408: ("The body came too slowly", ""),
    413: ("The body is too large", ""),
    422: ("The request does not fit", INVALID),
    429: ("Too many wrong credentials, or requests at once, from this address", ""),
    431: ("The request's head is too large", ""),
    503: ("The database did not answer; the same request can be sent again", ""),
}
ALWAYS: Final = (400, 401, 403, 408, 413, 422, 429, 431, 503)
_FIELDS: Final[Mapping[str, Any]] = {
    "type": {"type": "string"},
    "status": {"type": "integer"},
    "title": {"type": "string"},
    "detail": {"type": "string"},
    "code": {"type": "string"},
    "faults": {"type": "array", "items": {"type": "object"}},
}


def documented(
    statuses: Iterable[int], meanings: Meanings, more_fields: Iterable[str] = ()
) -> dict[int | str, dict[str, Any]]:
    """For `responses=`: these, and those that any request may get."""
    fields = {**_FIELDS, **{name: {"type": "string"} for name in more_fields}}
    schema = {"type": "object", "required": ["type", "status", "title"], "properties": fields}
    return {status: _documented(status, *meanings[status], schema) for status in (*statuses, *ALWAYS)}


def _documented(status: int, meaning: str, code: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    example = {"type": "about:blank", "status": status, "title": meaning, **({"code": code} if code else {})}
    return {"description": meaning, "content": {PROBLEM_TYPE: {"schema": schema, "example": example}}}


class CodedRoute(APIRoute):
    """A route whose refusals have a code. Input that does not fit is 422 however far it came.

    The first kind in `statuses` that fits an error decides; what fits none goes on to the application. An
    error's own code is more exact than the one there, except where the kind itself has one: that is renamed.
    """

    statuses: ClassVar[Statuses] = STATUSES

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answer_or_refuse(request: Request) -> Response:
            try:
                return await answer(request)
            except RequestValidationError as error:
                return _misfit(error)
            except HTTPException as error:
                if error.status_code != HTTPStatus.BAD_REQUEST:
                    raise
                return problem(422, "the body cannot be read", sendable(str(error.detail)), code=INVALID)
            except tuple(self.statuses) as error:
                return self._refusal(error)

        return answer_or_refuse

    def _refusal(self, error: TenureError) -> Response:
        kind, (status, usual) = next(
            (kind, what) for kind, what in self.statuses.items() if isinstance(error, kind)
        )
        code = usual if hasattr(kind, "code") else getattr(error, "code", usual)
        # the kernel's hint for what was not found names a command that knows nothing of the domain
        advice = "" if isinstance(error, NotFound) else error.advice
        return problem(status, sendable(str(error)), sendable(advice), code=code)


def _misfit(error: RequestValidationError) -> Response:
    faults = [
        {"where": sendable(".".join(map(str, fault["loc"]))), "what": sendable(fault["msg"])}
        for fault in error.errors()
    ]
    return problem(422, "the request does not fit", code=INVALID, faults=faults[:MAX_FAULTS])


def sendable(text: str) -> str:
    """What came from somebody's JSON can hold half a character, which is no UTF-8, and be of any length."""
    return text[:MAX_TEXT].encode("utf-8", "backslashreplace").decode()
