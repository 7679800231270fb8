"""A content on its way in: read once from beginning to end, and known by what was read."""

import hashlib
from dataclasses import dataclass
from typing import IO, Any, Final

from blake3 import blake3

from actors.media.sniff import sniff
from supervisor.errors import BadInput, TenureError
from supervisor.images.sniff import HEAD_BYTES

BLOCK: Final = 1 << 20


class ContentTooLarge(TenureError):
    """the content has more than {limit} bytes"""

    hint = "the setting media_max_bytes says how many are taken"
    exit_code = 2
    http_status = 413
    code = "TOO_LARGE"


class ContentDiffers(BadInput):
    """the content is not what was announced: {what}"""

    code = "CONTENT_DIFFERS"


@dataclass(frozen=True, slots=True)
class Content:
    """`file` can be read again from its beginning; `hash` (BLAKE3) is its name."""

    file: IO[bytes]
    hash: str
    sha256: str
    size: int
    mime_type: str

    def facts(self, storage_key: str | None = None) -> dict[str, Any]:
        """As the database takes them; without a key it only asks whether the content is needed."""
        facts = {"hash": self.hash, "mime_type": self.mime_type, "size": self.size, "sha256": self.sha256}
        return facts if storage_key is None else {**facts, "storage_key": storage_key}

    def expect(self, hash_: str | None, size: int | None) -> None:
        """Compare with what the sender said it would be."""
        if size is not None and size != self.size:
            raise ContentDiffers(what=f"{self.size} bytes came, {size} were expected")
        if hash_ is not None and hash_.lower() != self.hash:
            raise ContentDiffers(what=f"its BLAKE3 is {self.hash}, expected was {hash_.lower()}")


def examine(file: IO[bytes], limit: int) -> Content:
    """Blocking. ContentTooLarge as soon as more than `limit` bytes were read."""
    name, digest, size, head = blake3(), hashlib.sha256(), 0, b""
    file.seek(0)
    while block := file.read(BLOCK):
        size += len(block)
        if size > limit:
            raise ContentTooLarge(limit=limit)
        head = head or block[:HEAD_BYTES]
        name.update(block)
        digest.update(block)
    return Content(file, name.hexdigest(), digest.hexdigest(), size, sniff(head))
