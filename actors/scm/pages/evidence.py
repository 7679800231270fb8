"""`/scm/evidence`: one piece of evidence, read and compared before anything of it is shown."""

from typing import Annotated, Final

from fastapi import Query, Request, Response

from actors.scm.evidence import resolve
from actors.scm.pages.checking import Shelf
from actors.scm.uri import MAX_URI
from supervisor.api.view import ReplicaView
from supervisor.artifacts import ArtifactError, ArtifactMissing
from supervisor.console import page

SHOWN_BYTES: Final = 200_000


def add_to(router: page.PageRouter, replica: ReplicaView, shelf: Shelf) -> None:
    @router.get("/evidence")
    async def show(request: Request, uri: Annotated[str, Query(max_length=MAX_URI)]) -> Response:
        try:
            found = await resolve(uri, replica.store, shelf.artifacts)
        except ArtifactMissing as error:
            return _refused(request, uri, 404, "missing", error)
        except ArtifactError as error:
            return _refused(request, uri, 409, "wrong", error)
        content = found.content
        return page.render(
            request,
            "scm/evidence.html",
            uri=uri,
            verdict="verified",
            found=found,
            size=len(content),
            text=content[:SHOWN_BYTES].decode(errors="replace"),
            is_cut=len(content) > SHOWN_BYTES,
        )


def _refused(request: Request, uri: str, status: int, verdict: str, error: ArtifactError) -> Response:
    return page.render(
        request,
        "scm/evidence.html",
        status=status,
        uri=uri,
        verdict=verdict,
        what=str(error),
        advice=error.advice,
    )
