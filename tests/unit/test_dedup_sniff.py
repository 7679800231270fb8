"""A file's kind comes from its bytes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.dedup.render.sniff import Kind, sniff
from supervisor.images.sniff import HEAD_BYTES
from tests.support import pictures

IMAGES = ("jpeg", "png", "gif", "webp", "tiff", "bmp", "heic", "avif")
VIDEOS = (
    ("mp4", "mp4", "mpeg4"),
    ("mov", "mp4", "mpeg4"),
    ("matroska", "mkv", "mpeg4"),
    ("webm", "webm", "libvpx-vp9"),
    ("avi", "avi", "mpeg4"),
    ("mpeg", "mpeg", "mpeg2video"),
    ("mpegts", "mpegts", "mpeg2video"),
    ("flv", "flv", "flv"),
    ("asf", "asf", "wmv2"),
)


@pytest.mark.parametrize("form", IMAGES)
def test_pictures_are_known(form: str) -> None:
    assert sniff(pictures.encoded(form)[:HEAD_BYTES]) == Kind(form, "image")


@pytest.mark.parametrize(("form", "name", "codec"), VIDEOS)
def test_videos_are_known(form: str, name: str, codec: str, tmp_path: Path) -> None:
    data = pictures.video(tmp_path / "video", form, codec, frames=3)
    assert sniff(data[:HEAD_BYTES]) == Kind(name, "video")


@pytest.mark.parametrize("what", pictures.REFUSED)
def test_what_is_no_picture_is_refused(what: str) -> None:
    """S12: vector, script and list formats are not decoded at all."""
    assert sniff(pictures.REFUSED[what]) is None


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1avif", "avif"),
        (b"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1heic", "heic"),
        (b"\x00\x00\x00\x18ftypqt  \x00\x00\x00\x00qt  \x00\x00\x00\x00", "mp4"),
        (b"\x00\x00\x00\x08wide\x00\x00\x10\x00mdat", "mov"),
        (b"MM\x00*" + bytes(20), "tiff"),
        (b"II+\x00\x08\x00\x00\x00" + bytes(20), "tiff"),
        (b"\x00\x00\x01\xb3" + bytes(20), "mpegvideo"),
        ((b"\x00\x00\x00\x00\x47" + bytes(187)) * 5, "mpegts"),
    ],
)
def test_rarer_beginnings(head: bytes, name: str) -> None:
    kind = sniff(head)
    assert kind
    assert kind.name == name


def test_every_kind_has_a_decoder() -> None:
    """Nothing may be recognised that has no decoder, and nothing decoded that is not recognised."""
    from actors.dedup.render import sniff, video
    from supervisor.images import decode
    from supervisor.images import sniff as pictures

    stills = {name for _, name in pictures._MAGIC} | {"webp", "avif", "heic", "bmp"}
    assert stills == set(decode.LOADERS) | set(decode.HELD)
    moving = {kind.name for _, kind in sniff._MAGIC} | {"avi", "mp4", "mov", "webm", "mkv", "mpegts"}
    assert moving == set(video.DEMUXERS)


@given(st.binary(max_size=512))
def test_any_bytes_have_an_answer(head: bytes) -> None:
    kind = sniff(head)
    assert kind is None or kind.media_type in ("image", "video")


@given(st.sampled_from([b"ftyp", b"RIFF", b"\x1a\x45\xdf\xa3", b"BM", b"\x47"]), st.binary(max_size=512))
def test_any_bytes_after_a_beginning_have_an_answer(magic: bytes, rest: bytes) -> None:
    for head in (magic + rest, bytes(4) + magic + rest):
        kind = sniff(head)
        assert kind is None or kind.name
