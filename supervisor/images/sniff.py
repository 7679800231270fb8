"""Which picture it is, from its first bytes alone; a name proves nothing.

Only formats that decode.py reads are known. A match is no promise that the rest of the file is sound.
"""

from typing import Final

HEAD_BYTES: Final = 4096

_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"II+\x00\x08\x00", "tiff"),
    (b"MM\x00+\x00\x08", "tiff"),
)
_AVIF_BRANDS: Final = frozenset((b"avif", b"avis"))
_HEIC_BRANDS: Final = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))
_BMP_HEADERS: Final = frozenset((12, 40, 52, 56, 64, 108, 124))


def sniff(head: bytes) -> str | None:
    """The common name of the format, which is also its media type behind `image/`; give HEAD_BYTES."""
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    if head[4:8] == b"ftyp":
        return _heif(head)
    # Two letters are little proof: the length of the header must be one that exists.
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return "bmp"
    return None


def _heif(head: bytes) -> str | None:
    """The file type box of ISO 14496-12: a brand, and those it is compatible with."""
    length = min(int.from_bytes(head[:4], "big"), len(head), 256)
    major = head[8:12]
    brands = {head[at : at + 4] for at in range(16, length - 3, 4)}
    if major in _AVIF_BRANDS or (major in _HEIC_BRANDS and brands & _AVIF_BRANDS):
        return "avif"
    return "heic" if major in _HEIC_BRANDS else None
