"""Errors as application/problem+json (RFC 9457)."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import JSONResponse

from supervisor.errors import TenureError

# The exit codes of the command line, in the words of HTTP.
STATUS_OF_EXIT: Final[Mapping[int, int]] = {1: 500, 2: 400, 3: 503, 4: 409, 5: 404}


class Problem(JSONResponse):
    media_type = "application/problem+json"

    def __init__(
        self, status: int, title: str, detail: str, headers: Mapping[str, str] | None, more: Mapping[str, Any]
    ) -> None:
        self.title = title
        self.detail = detail
        body = {"type": "about:blank", "status": status, "title": title}
        if detail:
            body["detail"] = detail
        super().__init__({**body, **more}, status, headers)


def problem(
    status: int, title: str, detail: str = "", *, headers: Mapping[str, str] | None = None, **more: Any
) -> Problem:
    return Problem(status, title or HTTPStatus(status).phrase, detail, headers, more)


def problem_of(error: TenureError, status: int | None = None) -> Problem:
    return problem(status or error.http_status or STATUS_OF_EXIT[error.exit_code], str(error), error.advice)
