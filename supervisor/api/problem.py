"""Errors as application/problem+json (RFC 9457)."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import JSONResponse

from supervisor.errors import TenureError

# The exit codes of the command line, in the words of HTTP.
STATUS_OF_EXIT: Final[Mapping[int, int]] = {1: 500, 2: 400, 3: 503, 4: 409, 5: 404}


def problem(
    status: int, title: str, detail: str = "", *, headers: Mapping[str, str] | None = None, **more: Any
) -> JSONResponse:
    body = {"type": "about:blank", "status": status, "title": title or HTTPStatus(status).phrase}
    if detail:
        body["detail"] = detail
    return JSONResponse({**body, **more}, status, headers, media_type="application/problem+json")


def problem_of(error: TenureError, status: int | None = None) -> JSONResponse:
    return problem(status or STATUS_OF_EXIT[error.exit_code], str(error), error.advice)
