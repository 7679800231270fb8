"""What a content is, from its bytes alone: neither a name nor what the sender says of it proves anything.

The answer is a media type. Text that a browser would run or follow (HTML, SVG, XML) is told apart from text
that is only shown. A match is no promise that the rest of the content is sound.
"""

import re
from typing import Final

from supervisor.images.sniff import HEAD_BYTES
from supervisor.images.sniff import sniff as sniff_picture

UNKNOWN: Final = "application/octet-stream"

_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x00\x00\x01\x00", "image/x-icon"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"OggS\x00", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"\x00\x00\x01\xba", "video/mpeg"),
    (b"\x00\x00\x01\xb3", "video/mpeg"),
)
_RIFF: Final = {b"AVI ": "video/x-msvideo", b"WAVE": "audio/wav"}
_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_SVG: Final = re.compile(r"<(?:\w+:)?svg[\s>/]", re.IGNORECASE)
# whatever the beginning of a document may be, and the tags by which browsers know one
_HTML: Final = re.compile(
    r"<(?:!doctype html|html|head|body|script|iframe|title|style|div|table|h1|a|br|p|font|!--|meta|link|img"
    r"|object|embed|form|svg|math|b)\b|<!--",
    re.IGNORECASE,
)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def sniff(head: bytes) -> str:
    """The type of a content that begins with `head`: HEAD_BYTES of it, or all where it is shorter."""
    if picture := sniff_picture(head):
        return f"image/{picture}"
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], UNKNOWN)
    if head[:4] == b"\x1a\x45\xdf\xa3":
        return "video/webm" if b"webm" in head[:128] else "video/x-matroska"
    if head[4:8] == b"ftyp":
        return _iso_media(head)
    if len(head) > 1 and head[0] == 0xFF and head[1] in (0xFB, 0xF3, 0xF2):
        return "audio/mpeg"
    return _text(head)


def _iso_media(head: bytes) -> str:
    major = head[8:12]
    if major.startswith(b"M4A"):
        return "audio/mp4"
    return "video/quicktime" if major == b"qt  " else "video/mp4"


def _text(head: bytes) -> str:
    text = _decoded(head)
    if not text:
        return UNKNOWN
    if _SVG.search(text):
        return "image/svg+xml"
    start = text.lstrip()
    if start.lower().startswith("<?xml"):
        return "text/xml"
    return "text/html" if _HTML.search(text) else "text/plain"


def _decoded(head: bytes) -> str | None:
    """As text; None where it is none. The last character may have been cut."""
    mark, encoding = next(((bom, name) for bom, name in _BOMS if head.startswith(bom)), (b"", "utf-8"))
    body = head[len(mark) :]
    for cut in range(4):
        try:
            text = body[: len(body) - cut].decode(encoding)
        except UnicodeDecodeError:
            if len(head) < HEAD_BYTES:
                return None
            continue
        return None if _CONTROLS.search(text) else text
    return None
