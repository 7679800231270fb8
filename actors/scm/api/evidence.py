"""Evidence: what the ledger says of it, whether its content is still that, the content, and more of it."""

from typing import IO, Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Path, Response, status
from starlette.types import Receive, Scope, Send

from actors.scm.api.models import BIGINT, Attach, EvidenceFacts, EvidenceUri, Verified
from actors.scm.api.refusals import Route, documented
from actors.scm.evidence import Located, fetch, locate
from actors.scm.uri import key_of_physical
from supervisor.api.principal import Actor
from supervisor.api.view import ReplicaView
from supervisor.artifacts import ArtifactMissing, ChecksumMismatch, Elsewhere
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.errors import SizeMismatch
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.errors import NotFound

PIECE_BYTES = 1 << 16
# the digest in its name says what it is for ever
CACHED = "private, max-age=31536000, immutable"
ItemId = Annotated[int, Path(ge=1, le=BIGINT, description="An item of the logbook.")]


class EvidenceRoutes:
    def __init__(self, view: ReplicaView) -> None:
        self._store = view.store
        self._artifacts = open_artifacts(load_artifact_settings(), view.settings.state_dir)

    async def show(self, uri: EvidenceUri) -> dict[str, Any]:
        """Where it is kept, how large it is, and its SHA-256."""
        return _facts(await locate(uri, self._store))

    async def verify(self, uri: EvidenceUri) -> dict[str, Any]:
        """Read the content and compare it with the ledger. That it is not sound is an answer, no error."""
        located = await locate(uri, self._store)
        try:
            found = await self._artifacts.verify(await located.place(self._artifacts), located.sha256)
            if found.size != located.size_bytes:
                raise SizeMismatch(key=located.key, found=found.size, expected=located.size_bytes)
        except (ChecksumMismatch, ArtifactMissing, Elsewhere) as error:
            return {**_facts(located), "sound": False, "code": error.code, "detail": str(error)}
        return {**_facts(located), "sound": True, "code": None, "detail": None}

    async def content(self, uri: EvidenceUri) -> Response:
        """The content, as a download. It was read and compared before its first byte goes out."""
        located = await locate(uri, self._store)
        return ContentResponse(located, await fetch(located, self._artifacts))

    async def attach(self, actor: Actor, item_id: ItemId, asked: Attach) -> dict[str, Any]:
        """Make an artifact evidence of an item. An address of our own store becomes its key; any other is
        refused. Attached again, it is the same evidence."""
        key = key_of_physical(asked.uri, await self._artifacts.places())
        if await self._store.row("read_logbook_item", item_id) is None:
            raise NotFound(kind="item", name=str(item_id))
        found = await self._artifacts.verify(key, asked.sha256)
        attached = await self._store.value(
            "attach_evidence", actor, item_id, asked.kind, key, found.sha256, found.size
        )
        return _facts(await locate(attached, self._store))


def _facts(located: Located) -> dict[str, Any]:
    return {
        "evidence_uri": located.uri,
        "key": located.key,
        "sha256": located.sha256,
        "size_bytes": located.size_bytes,
    }


class ContentResponse(Response):
    """Sent piece by piece out of a file of its own, which is closed however this ends."""

    media_type = "application/octet-stream"

    def __init__(self, located: Located, file: IO[bytes]) -> None:
        super().__init__(
            headers={
                "Content-Length": str(located.size_bytes),
                "Content-Disposition": f'attachment; filename="{located.sha256[:16]}.diff"',
                "ETag": f'"{located.sha256}"',
                "Cache-Control": CACHED,
            }
        )
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  ASGI's
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        with self._file as file:
            await send(start)
            while piece := await to_thread.run_sync(file.read, PIECE_BYTES):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def routes(view: ReplicaView) -> APIRouter:
    evidence, router = EvidenceRoutes(view), APIRouter(route_class=Route)
    router.add_api_route(
        "/evidence",
        evidence.show,
        methods=["GET"],
        response_model=EvidenceFacts,
        summary="Show evidence",
        responses=documented(404, 409),
    )
    router.add_api_route(
        "/evidence/verify",
        evidence.verify,
        methods=["GET"],
        response_model=Verified,
        summary="Verify evidence",
        responses=documented(404, 409),
    )
    router.add_api_route(
        "/evidence/content",
        evidence.content,
        methods=["GET"],
        response_class=Response,
        summary="Get the content of evidence",
        responses={
            200: {"description": "The content, verified", "content": {"application/octet-stream": {}}},
            **documented(404, 409),
        },
    )
    router.add_api_route(
        "/items/{item_id}/attachments",
        evidence.attach,
        methods=["POST"],
        status_code=status.HTTP_200_OK,
        response_model=EvidenceFacts,
        summary="Attach evidence to an item",
        responses=documented(404, 409),
    )
    return router
