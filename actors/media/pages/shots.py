"""What is put into a picture's box. Pure."""

from dataclasses import dataclass
from typing import Final

from supervisor.store import Record

DRAWN: Final = frozenset(f"image/{kind}" for kind in ("jpeg", "png", "gif", "webp", "avif", "bmp"))
"""What every browser draws."""
WHOLE_BYTES: Final = 4_000_000
"""A content without a rendition is shown itself when it is no larger."""


@dataclass(frozen=True, slots=True)
class Shot:
    """A ref and the content to show for it; None: there is no picture of it."""

    ref: Record
    source: str | None


def shot_of(ref: Record) -> Shot:
    if ref["small_hash"] is not None:
        return Shot(ref, content_path(ref["small_hash"]))
    return Shot(ref, content_path(ref["blob_hash"]) if is_drawn(ref["mime_type"], ref["file_size"]) else None)


def is_drawn(mime_type: str, size: int) -> bool:
    return mime_type in DRAWN and size <= WHOLE_BYTES


def content_path(hash_: str) -> str:
    return f"/api/v1/media/blobs/{hash_}"
