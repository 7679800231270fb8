"""What a file is, from its first bytes alone; its name proves nothing.

Only formats that are decoded here are known. Everything else is None: vector and script formats (SVG, PDF,
PostScript) and playlists, which can name other files, too. A match is no promise that the rest of the file
is sound.
"""

from typing import Literal, NamedTuple

from supervisor.images.sniff import sniff as sniff_picture

MediaType = Literal["image", "video"]


class Kind(NamedTuple):
    """A format by its common name, and what it holds."""

    name: str
    media_type: MediaType


_MAGIC: tuple[tuple[bytes, Kind], ...] = (
    (b"\x00\x00\x01\xba", Kind("mpeg", "video")),
    (b"\x00\x00\x01\xb3", Kind("mpegvideo", "video")),
    (b"FLV\x01", Kind("flv", "video")),
    (b"OggS\x00", Kind("ogg", "video")),
    (bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c"), Kind("asf", "video")),
)
_MOV_BOXES = frozenset((b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot"))
# Packets of a transport stream, plain and with the time stamps of recorders: (first sync byte, length).
_TRANSPORT = ((0, 188), (4, 192))


def sniff(head: bytes) -> Kind | None:
    """The kind of a file that begins with `head`; give HEAD_BYTES, or the whole file where it is shorter."""
    if picture := sniff_picture(head):
        return Kind(picture, "image")
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[:4] == b"RIFF":
        return Kind("avi", "video") if head[8:12] == b"AVI " else None
    if head[:4] == b"\x1a\x45\xdf\xa3":
        return _matroska(head)
    return _iso_media(head) or _transport(head)


def _iso_media(head: bytes) -> Kind | None:
    """The boxes of ISO 14496-12: MP4, QuickTime."""
    box = head[4:8]
    if box == b"ftyp":
        return Kind("mp4", "video")
    # QuickTime from before the file type box: a plausible first box of its own.
    if box in _MOV_BOXES and (head[:4] == b"\x00\x00\x00\x01" or int.from_bytes(head[:4], "big") >= 8):
        return Kind("mov", "video")
    return None


def _matroska(head: bytes) -> Kind | None:
    document = head[:128]
    if b"webm" in document:
        return Kind("webm", "video")
    return Kind("mkv", "video") if b"matroska" in document else None


def _transport(head: bytes) -> Kind | None:
    for first, length in _TRANSPORT:
        syncs = head[first : first + 5 * length : length]
        if len(syncs) >= 4 and set(syncs) == {0x47}:
            return Kind("mpegts", "video")
    return None
