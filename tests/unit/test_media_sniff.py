"""The type of a content comes from its bytes."""

import pytest

from actors.media.sniff import UNKNOWN, sniff
from supervisor.images.sniff import HEAD_BYTES
from tests.support.pictures import encoded


@pytest.mark.parametrize("form", ["png", "jpeg", "gif", "webp", "tiff", "bmp", "heic", "avif"])
def test_pictures_are_known(form: str) -> None:
    """R002-34: types that a role takes or not are read from the content."""
    assert sniff(encoded(form)[:HEAD_BYTES]) == f"image/{form}"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"", UNKNOWN),
        (b"\x00\x01\x02\x03", UNKNOWN),
        (b"\xff\xfe\x00\xd8", UNKNOWN),
        (b"plain words\n", "text/plain"),
        ("ä ö ü €".encode(), "text/plain"),
        (b"x" * (HEAD_BYTES - 1) + b"\xe2", "text/plain"),
        (b"%PDF-1.7", "application/pdf"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x00\x00\x00\x18ftypisom\x00\x00\x00\x00", "video/mp4"),
        (b"\x00\x00\x00\x14ftypqt  \x00\x00\x00\x00", "video/quicktime"),
        (b"\x1a\x45\xdf\xa3....webm", "video/webm"),
        (b"RIFF\x00\x00\x00\x00WAVE", "audio/wav"),
        (b"RIFF\x00\x00\x00\x00JUNK", UNKNOWN),
        (b"ID3\x04", "audio/mpeg"),
    ],
)
def test_other_contents(head: bytes, kind: str) -> None:
    assert sniff(head) == kind


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"<!DOCTYPE html><p>", "text/html"),
        (b"\n\n   <html>", "text/html"),
        (b"\xef\xbb\xbf<SCRIPT>alert(1)</SCRIPT>", "text/html"),
        ("<script>".encode("utf-16"), "text/html"),
        (b"words, then <iframe src=x>", "text/html"),
        (b"<!-- x --><b>", "text/html"),
        (b"<svg onload=alert(1)>", "image/svg+xml"),
        (b'<?xml version="1.0"?>\n<!-- c --><svg:svg xmlns:svg="x">', "image/svg+xml"),
        (b'<?xml version="1.0"?><feed/>', "text/xml"),
    ],
)
def test_what_could_run_is_never_called_text(head: bytes, kind: str) -> None:
    assert sniff(head) == kind
