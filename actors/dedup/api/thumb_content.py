"""The bytes of a thumbnail, out of its directory and nowhere else."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fastapi import Response

from actors.dedup.confine import Beneath, FileTrouble
from actors.dedup.names import BadPath
from supervisor.api.problem import problem
from supervisor.store import Record
from supervisor.threads import in_thread

MEDIA_TYPES: Final[Mapping[str, str]] = {"jpeg": "image/jpeg", "webp": "image/webp"}
BYTES_MOST: Final = 64 * 1024 * 1024


async def content_answer(directory: Path, thumb: Record, known: str | None) -> Response:
    """`known` is what the client says it has (If-None-Match)."""
    if thumb["status"] != "ready":
        return _missing("NOT_READY", f"the thumbnail is {thumb['status']}")
    tag = f'"{thumb["thumb_key"]}"'
    headers = {"ETag": tag, "Cache-Control": "private, max-age=31536000, immutable"}
    if known is not None and _is_known(known, tag):
        return Response(status_code=304, headers=headers)
    try:
        content = await in_thread(lambda _stop: read_beneath(directory, thumb["output_relpath"]))
    except BadPath:
        return _missing("BAD_PATH", "the thumbnail has no place beneath the thumbnails' directory")
    except FileTrouble as error:
        return _missing(
            error.code, "the file of the thumbnail cannot be read; ask for a cleanup of its group"
        )
    if len(content) != thumb["bytes_size"]:
        return _missing("FILE_CHANGED", "the file of the thumbnail is not the one that was made")
    return Response(content, media_type=MEDIA_TYPES[thumb["format"]], headers=headers)


def read_beneath(directory: Path, relative: str) -> bytes:
    """Blocking. No link is followed below the directory."""
    try:
        root = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        raise FileTrouble(path=directory.name, code="NOT_FOUND") from None
    with Beneath(root) as thumbs, os.fdopen(thumbs.open_file(relative), "rb") as file:
        try:
            return file.read(BYTES_MOST)
        except OSError:
            raise FileTrouble(path=relative, code="IO_ERROR") from None


def _is_known(known: str, tag: str) -> bool:
    """Compared weakly, as a GET is: `*` or one of a list."""
    return any(one.strip().removeprefix("W/") in {tag, "*"} for one in known.split(","))


def _missing(code: str, why: str) -> Response:
    return problem(404, "there is no picture", why, code=code)
