"""How the routes of the kernel are made: who may, what they answer, what they refuse; all documented."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, StringConstraints

from supervisor.api.principal import Needs, Role
from supervisor.api.v1.paging import BIGINT, EARLIEST, LATEST
from supervisor.sight import rendered

PROBLEM_TYPE: Final = "application/problem+json"
TEXT: Final = r"^[^\x00]*$"

_MEANINGS: Final[Mapping[int, str]] = {
    400: "The input cannot be used; the title says why",
    401: "A token is needed, or this one is not valid",
    403: "The role of the token is not enough",
    404: "There is no such thing",
    409: "Not as things stand; the title says why",
    408: "The body came too slowly",
    413: "The body is too large",
    422: "The request does not fit; `faults` says where",
    429: "Too many; try again later",
    431: "The request's head is too large",
    503: "The database did not answer, or all places are taken; the same request can be sent again",
}


_PROBLEM: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["type", "status", "title"],
    "properties": {
        "type": {"type": "string"},
        "status": {"type": "integer"},
        "title": {"type": "string", "description": "what is wrong"},
        "detail": {"type": "string", "description": "what to do next"},
        "faults": {"type": "array", "items": {"type": "object"}},
    },
}


def _bounded(moment: datetime) -> datetime:
    if not EARLIEST <= moment <= LATEST:
        raise ValueError(f"must be between {EARLIEST.date()} and {LATEST.date()}")
    return moment


RunId = Annotated[int, Path(ge=1, le=BIGINT, description="the id of a run", examples=[7])]
JobName = Annotated[
    str, Path(max_length=200, pattern=TEXT, description="the name of a job", examples=["nightly"])
]
Filter = Annotated[str | None, Query(min_length=1, max_length=300, pattern=TEXT)]
Moment = Annotated[AwareDatetime, AfterValidator(_bounded)]
Key = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=TEXT)]


class Asked(BaseModel):
    """A body: a field that is not known is a mistake, not a wish to be ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


def answer(value: Any, status: int = 200) -> Response:
    return Response(rendered(value), status, media_type="application/json")


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For `responses=`: these, and those that any request may get."""
    return {
        status: {
            "description": _MEANINGS[status],
            "content": {
                PROBLEM_TYPE: {
                    "schema": _PROBLEM,
                    "example": {"type": "about:blank", "status": status, "title": _MEANINGS[status]},
                }
            },
        }
        for status in sorted({*statuses, 401, 403, 408, 413, 422, 429, 431, 503})
    }


class Hanger:
    """Adds routes to a router, each with its model, its role and its refusals."""

    def __init__(self, tag: str) -> None:
        self.router = APIRouter(tags=[tag])

    def add(
        self,
        method: str,
        path: str,
        endpoint: Callable[..., Any],
        model: Any,
        summary: str,
        *refusals: int,
        role: Role = Role.VIEW,
        more: Mapping[int | str, dict[str, Any]] | None = None,
    ) -> None:
        self.router.add_api_route(
            path,
            endpoint,
            methods=[method],
            response_model=model,
            summary=summary,
            operation_id=endpoint.__name__.strip("_"),
            responses={**documented(*refusals), **(more or {})},
            dependencies=[Depends(Needs(role))],
        )
