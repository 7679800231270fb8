"""A content as an answer: whole or one range of it, streamed, and never run by a browser.

Types that a browser shows without running anything of them go out as they are; documents and archives only as
a download, and everything else as bytes without a type. Whatever a browser makes of it belongs to no site
(`sandbox`), and `nosniff` is on every answer of a replica.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from supervisor.api.problem import problem
from supervisor.artifacts import ArtifactMissing, Artifacts, BadRange

SHOWN: Final = frozenset(
    {
        *(f"image/{kind}" for kind in ("jpeg", "png", "gif", "webp", "avif", "heic", "tiff", "bmp")),
        *(f"video/{kind}" for kind in ("mp4", "webm", "quicktime", "mpeg", "x-matroska", "x-msvideo")),
        *(f"audio/{kind}" for kind in ("mpeg", "ogg", "flac", "wav", "mp4")),
        "text/plain",
    }
)
NAMED: Final = SHOWN | {
    "image/x-icon",
    *(f"application/{kind}" for kind in ("pdf", "zip", "gzip", "x-7z-compressed")),
}
"""What goes out under its type; any other, such as HTML, SVG, scripts and styles, could be active."""
POLICY: Final = "default-src 'none'; frame-ancestors 'none'; sandbox"
RANGE: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")
CACHED: Final = "private, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    length: int


class Unsatisfiable(Exception):
    """No byte of the content is in the range."""


def span_of(header: str | None, size: int) -> Span | None:
    """The one range that was asked for; None = all of it, also for what is no range or several of them."""
    found = RANGE.fullmatch(header.strip()) if header else None
    if found is None or found[0] == "bytes=-":
        return None
    first, last = found[1], found[2]
    if not first:
        length = min(int(last), size)
        if length == 0:
            raise Unsatisfiable
        return Span(size - length, length)
    start = int(first)
    end = min(int(last), size - 1) if last else size - 1
    if last and int(last) < start:
        return None
    if start >= size:
        raise Unsatisfiable
    return Span(start, end - start + 1)


def knows(header: str | None, tag: str) -> bool:
    """If-None-Match, compared weakly, as a GET is: `*` or one of a list."""
    return header is not None and any(
        one.strip().removeprefix("W/") in {tag, "*"} for one in header.split(",")
    )


def content_headers(blob: Mapping[str, Any]) -> dict[str, str]:
    hash_ = blob["file_hash"]
    kind = blob["mime_type"] if blob["mime_type"] in NAMED else "application/octet-stream"
    headers = {
        "ETag": f'"{hash_}"',
        "Cache-Control": CACHED,
        "Accept-Ranges": "bytes",
        "Content-Security-Policy": POLICY,
    }
    headers["Content-Type"] = "text/plain; charset=utf-8" if kind == "text/plain" else kind
    if kind not in SHOWN:
        headers["Content-Disposition"] = f'attachment; filename="{hash_[:16]}"'
    return headers


def answer_content(
    artifacts: Artifacts, blob: Mapping[str, Any], asked: Mapping[str, str], method: str
) -> Response:
    """`blob` has mime_type, file_hash (which names the content), file_size and storage_key."""
    headers, size = content_headers(blob), blob["file_size"]
    if knows(asked.get("if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    condition = asked.get("if-range")
    try:
        span = span_of(asked.get("range"), size) if condition in (None, headers["ETag"]) else None
    except Unsatisfiable:
        return problem(
            416,
            "no byte of the content is in that range",
            f"it has {size} bytes",
            code="RANGE_NOT_SATISFIABLE",
            headers={"Content-Range": f"bytes */{size}"},
        )
    if span is None:
        return ContentResponse(artifacts, blob["storage_key"], Span(0, size), 200, headers, method)
    headers["Content-Range"] = f"bytes {span.start}-{span.start + span.length - 1}/{size}"
    return ContentResponse(artifacts, blob["storage_key"], span, 206, headers, method)


class ContentResponse(Response):
    """Opened, sent and closed in one task; a client that goes away ends it."""

    def __init__(
        self,
        artifacts: Artifacts,
        key: str,
        span: Span,
        status: int,
        headers: Mapping[str, str],
        method: str,
    ) -> None:
        super().__init__(status_code=status, headers={**headers, "Content-Length": str(span.length)})
        self._artifacts = artifacts
        self._key = key
        self._span = span
        self._with_body = method != "HEAD"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
                await self._send(send)
                tasks.cancel_scope.cancel()
        except* (ArtifactMissing, BadRange):
            missing = problem(
                404,
                "the content is not where it should be",
                "this replica's artifact store does not have it: `tenure artifacts verify` says more",
                code="CONTENT_MISSING",
            )
            await missing(scope, receive, send)

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        if not self._with_body:
            await self._artifacts.stat(self._key)
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return
        span = self._span
        async with self._artifacts.open(self._key, start=span.start, length=span.length) as pieces:
            await send(start)
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
