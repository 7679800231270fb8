"""Thumbnails through the chamber: every format, and files that were made to do harm."""

import io
import os
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import pytest
import pyvips
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from actors.dedup.render import LIMITS, Rendered, ThumbnailFailed, render, renderers
from supervisor.chamber import Chambers
from supervisor.clock import boottime
from supervisor.errors import BadInput
from tests.support import pictures
from tests.support.slowness import patient

UPRIGHT = ("red", "green", "blue", "yellow")
SECONDS = 600.0


@pytest.fixture(scope="module")
async def chambers() -> AsyncIterator[Chambers]:
    async with renderers(1) as pool:
        yield pool


async def thumbnail(
    chambers: Chambers, data: bytes, form: Any = "jpeg", size: int = 128, seconds: float = SECONDS
) -> tuple[Rendered, bytes]:
    source, output = os.memfd_create("source"), os.memfd_create("output")
    try:
        os.write(source, data)
        made = await render(chambers, source, output, form, size, boottime() + seconds)
        written = os.pread(output, 1 << 24, 0)
    finally:
        os.close(source)
        os.close(output)
    assert len(written) == made.bytes_size
    return made, written


async def failure(chambers: Chambers, data: bytes) -> str:
    """The code of the failure; its message is for people, and the child answers the next request."""
    with pytest.raises(ThumbnailFailed) as failed:
        await thumbnail(chambers, data)
    message = str(failed.value)
    assert message.isprintable()
    assert "/" not in message
    assert len(message) <= 300
    return failed.value.code


@pytest.mark.parametrize("form", ["jpeg", "webp"])
@pytest.mark.parametrize("kind", ["jpeg", "png", "gif", "webp", "tiff", "bmp", "heic", "avif"])
async def test_every_kind_of_picture(chambers: Chambers, kind: str, form: str) -> None:
    made, data = await thumbnail(chambers, pictures.encoded(kind), form)
    assert made == Rendered(128, 64, len(data), "image", kind, 640, 320)
    assert pictures.corners(data) == (128, 64, UPRIGHT)
    assert Image.open(io.BytesIO(data)).format == form.upper()


VIDEOS = [
    ("mp4", "libx264", "mp4"),
    ("mp4", "mpeg4", "mp4"),
    ("mov", "mpeg4", "mp4"),
    ("matroska", "libx264", "mkv"),
    ("webm", "libvpx-vp9", "webm"),
    ("avi", "mpeg4", "avi"),
    ("mpegts", "mpeg2video", "mpegts"),
    ("mpeg", "mpeg2video", "mpeg"),
    ("flv", "flv", "flv"),
    ("asf", "wmv2", "asf"),
]


@pytest.mark.parametrize(("container", "codec", "kind"), VIDEOS)
async def test_every_kind_of_video(
    chambers: Chambers, tmp_path: Path, container: str, codec: str, kind: str
) -> None:
    made, data = await thumbnail(chambers, pictures.video(tmp_path / "video", container, codec))
    assert made == Rendered(128, 64, len(data), "video", kind, 640, 320)
    assert pictures.corners(data) == (128, 64, UPRIGHT)


@pytest.mark.parametrize(
    ("orientation", "expected"),
    [
        (1, (128, 64, ("red", "green", "blue", "yellow"))),
        (2, (128, 64, ("green", "red", "yellow", "blue"))),
        (3, (128, 64, ("yellow", "blue", "green", "red"))),
        (4, (128, 64, ("blue", "yellow", "red", "green"))),
        (5, (64, 128, ("red", "blue", "green", "yellow"))),
        (6, (64, 128, ("blue", "red", "yellow", "green"))),
        (7, (64, 128, ("yellow", "green", "blue", "red"))),
        (8, (64, 128, ("green", "yellow", "red", "blue"))),
    ],
)
async def test_orientation_is_applied(chambers: Chambers, orientation: int, expected: Any) -> None:
    made, data = await thumbnail(chambers, pictures.oriented_jpeg(orientation))
    assert pictures.corners(data) == expected
    assert (made.width, made.height) == expected[:2]
    assert not Image.open(io.BytesIO(data)).getexif()


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        (90, (64, 128, ("blue", "red", "yellow", "green"))),
        (180, (128, 64, ("yellow", "blue", "green", "red"))),
        (270, (64, 128, ("green", "yellow", "red", "blue"))),
    ],
)
async def test_a_turned_video_is_shown_upright(
    chambers: Chambers, tmp_path: Path, degrees: int, expected: Any
) -> None:
    data = pictures.turned_video(pictures.video(tmp_path / "video", "mp4", "mpeg4"), degrees)
    assert pictures.corners((await thumbnail(chambers, data))[1]) == expected


async def test_a_video_that_begins_black_shows_a_later_frame(chambers: Chambers, tmp_path: Path) -> None:
    data = pictures.video(tmp_path / "video", "mp4", "mpeg4", dark=12)
    assert pictures.corners((await thumbnail(chambers, data))[1])[2] == UPRIGHT
    black = pictures.video(tmp_path / "black", "mp4", "mpeg4", dark=30)
    assert pictures.corners((await thumbnail(chambers, black))[1])[2] == ("black",) * 4


async def test_small_pictures_are_not_blown_up(chambers: Chambers) -> None:
    made, _ = await thumbnail(chambers, pictures.encoded("png", pictures.quadrants(40, 20)), size=2048)
    assert (made.width, made.height) == (40, 20)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16"])
async def test_every_form_of_pixels(chambers: Chambers, mode: str) -> None:
    picture = Image.new(mode, (300, 200))
    for form in ("jpeg", "webp"):
        made, _ = await thumbnail(chambers, pictures.encoded("png", picture), form)
        assert (made.width, made.height) == (128, 85)


async def test_a_cmyk_picture_comes_out_as_seen(chambers: Chambers) -> None:
    data = pictures.encoded("jpeg", pictures.quadrants().convert("CMYK"))
    _, written = await thumbnail(chambers, data)
    assert pictures.corners(written)[2] == UPRIGHT
    assert Image.open(io.BytesIO(written)).mode == "RGB"


async def test_transparency_is_white_in_jpeg_and_kept_in_webp(chambers: Chambers) -> None:
    clear = pictures.encoded("png", Image.new("RGBA", (64, 64), (0, 0, 0, 0)))
    assert pictures.corners((await thumbnail(chambers, clear))[1])[2] == ("white",) * 4
    kept = Image.open(io.BytesIO((await thumbnail(chambers, clear, "webp"))[1]))
    assert kept.mode == "RGBA"
    assert kept.getchannel("A").getextrema() == (0, 0)


async def test_a_colour_profile_is_applied_and_dropped(chambers: Chambers) -> None:
    plain = pictures.encoded("jpeg", comment=b"private")
    wide = pyvips.Image.new_from_buffer(plain, "").jpegsave_buffer(profile="p3", Q=95)
    assert b"private" in plain
    reds = []
    for data in (plain, wide):
        _, written = await thumbnail(chambers, data)
        picture = Image.open(io.BytesIO(written))
        assert "icc_profile" not in picture.info
        assert b"private" not in written
        reds.append(picture.getchannel("R").crop((120, 4, 121, 5)).tobytes())
    # The same numbers mean a purer green in Display P3; in sRGB that has less red.
    assert reds[0] > reds[1]


async def test_the_name_and_position_of_the_source_do_not_matter(chambers: Chambers, tmp_path: Path) -> None:
    (tmp_path / "picture.svg").write_bytes(pictures.encoded("png"))
    source = os.open(tmp_path / "picture.svg", os.O_RDONLY)
    output = os.open(tmp_path / "output", os.O_RDWR | os.O_CREAT, 0o600)
    os.lseek(source, 100, os.SEEK_SET)
    os.write(output, b"x" * 100000)
    made = await render(chambers, source, output, "webp", 64, boottime() + SECONDS)
    assert os.fstat(output).st_size == made.bytes_size
    os.close(source)
    os.close(output)


@pytest.mark.parametrize(("form", "size"), [("png", 64), ("jpeg", 15), ("jpeg", 2049), ("jpeg", -1)])
async def test_wrong_requests_are_refused(chambers: Chambers, form: str, size: int) -> None:
    with pytest.raises(BadInput):
        await thumbnail(chambers, pictures.encoded("png"), form, size)


@pytest.mark.parametrize("what", pictures.REFUSED)
async def test_what_is_no_picture_is_refused(chambers: Chambers, what: str) -> None:
    """S12: nothing in such a file is followed, because nothing of it is read."""
    assert await failure(chambers, pictures.REFUSED[what]) == "THUMB_UNSUPPORTED_TYPE"


@pytest.mark.parametrize("kind", ["jpeg", "png", "gif", "webp", "tiff", "bmp", "heic", "avif"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
async def test_a_cut_picture_fails(chambers: Chambers, kind: str, share: float) -> None:
    noise = Image.effect_noise((640, 320), 90).convert("RGB")
    data = pictures.encoded(kind, noise)
    assert await failure(chambers, data[: int(len(data) * share)]) == "THUMB_DECODE_FAILED"


async def test_a_header_that_claims_too_much_is_believed_before_decoding(chambers: Chambers) -> None:
    for width, height in ((50000, 50000), (2**31 - 1, 2**31 - 1), (70000, 1), (0, 5)):
        code = await failure(chambers, pictures.png(width, height, b""))
        assert code in ("THUMB_TOO_LARGE", "THUMB_DECODE_FAILED")
    assert await failure(chambers, pictures.png(50000, 50000, b"")) == "THUMB_TOO_LARGE"


async def test_a_decompression_bomb_is_not_decompressed(chambers: Chambers) -> None:
    """S12: 900 megapixels in less than a megabyte."""
    assert await failure(chambers, pictures.png_bomb()) == "THUMB_TOO_LARGE"


async def test_bitmaps_and_heic_are_bounded_too(chambers: Chambers) -> None:
    header = struct.pack("<IiiHHIIiiII", 40, 60000, 60000, 1, 24, 0, 0, 0, 0, 0, 0)
    bomb = b"BM" + struct.pack("<IHHI", 10**6, 0, 0, 54) + header + bytes(1000)
    assert await failure(chambers, bomb) == "THUMB_TOO_LARGE"
    heic = pictures.encoded("heic")
    at = heic.index(b"ispe") + 8
    claimed = heic[:at] + struct.pack(">II", 40000, 40000) + heic[at + 8 :]
    assert await failure(chambers, claimed) in ("THUMB_TOO_LARGE", "THUMB_DECODE_FAILED")


async def test_only_the_first_of_many_frames_is_read(chambers: Chambers) -> None:
    made, _ = await thumbnail(chambers, pictures.gif_of_frames(300))
    assert (made.source_width, made.source_height) == (64, 64)


MAGIC = [
    b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF\xff\xff\x00\x00WEBPVP8 ", b"II*\x00",
    b"BM\x00\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00", b"\x00\x00\x00\x18ftypheic",
    b"\x00\x00\x00\x18ftypavif", b"\x00\x00\x00\x18ftypisom", b"\x1a\x45\xdf\xa3\x93\x42\x82\x88matroska",
    b"RIFF\xff\xff\x00\x00AVI LIST", b"\x00\x00\x01\xba", b"FLV\x01\x05", b"OggS\x00",
    bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c"),
]  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(MAGIC), st.binary(max_size=4096))
async def test_garbage_with_a_right_beginning_fails(chambers: Chambers, magic: bytes, rest: bytes) -> None:
    """S12: whatever the decoder makes of it, the answer is a code and the replica lives."""
    assert (await failure(chambers, magic + rest)).startswith("THUMB_")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["jpeg", "png", "gif", "webp", "tiff", "bmp", "heic", "avif"]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=20),
)
async def test_a_damaged_picture_is_made_or_fails(chambers: Chambers, kind: str, damage: Any) -> None:
    data = bytearray(SMALL[kind])
    for place, value in damage:
        data[int(place * (len(data) - 1))] = value
    try:
        made, _ = await thumbnail(chambers, bytes(data))
    except ThumbnailFailed as failed:
        code = failed.code
    else:
        code = "THUMB_MADE" if max(made.width, made.height) <= 128 else ""
    assert code.startswith("THUMB_")


SMALL = {
    kind: pictures.encoded(kind, pictures.quadrants(200, 100))
    for kind in ("jpeg", "png", "gif", "webp", "tiff", "bmp", "heic", "avif")
}


HOSTILE_MP4 = {
    "header only": pictures.FTYP,
    "moov of nothing": pictures.FTYP + pictures.box(b"moov"),
    "moov that claims 4 GiB": pictures.FTYP + struct.pack(">I", 0xFFFFFFFF) + b"moov" + bytes(64),
    "moov of 2^63": pictures.FTYP + struct.pack(">I", 1) + b"moov" + struct.pack(">Q", 1 << 63),
    "boxes in boxes": pictures.FTYP
    + b"".join(struct.pack(">I4s", 80000 - 8 * depth, b"moov") for depth in range(9999)),
    "four milliard samples": pictures.FTYP
    + pictures.box(
        b"moov",
        pictures.box(b"trak", pictures.box(b"mdia", pictures.box(b"minf", pictures.box(
            b"stbl", pictures.box(b"stsz", bytes(4), bytes(4), b"\xff\xff\xff\xff"),
        )))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE_MP4)
async def test_a_hostile_moov_fails(chambers: Chambers, what: str) -> None:
    assert await failure(chambers, HOSTILE_MP4[what]) == "THUMB_VIDEO_FAILED"


@pytest.mark.parametrize(("container", "codec", "kind"), VIDEOS)
async def test_a_cut_video_gives_a_frame_or_fails(
    chambers: Chambers, tmp_path: Path, container: str, codec: str, kind: str
) -> None:
    data = pictures.video(tmp_path / "video", container, codec)
    for share in (0.3, 0.6, 0.9):
        try:
            made, _ = await thumbnail(chambers, data[: int(len(data) * share)])
        except ThumbnailFailed as failed:
            outcome = failed.code
        else:
            outcome = made.source_type
        assert outcome in (kind, "THUMB_VIDEO_FAILED")


async def test_an_mp4_without_its_index_fails(chambers: Chambers, tmp_path: Path) -> None:
    data = pictures.video(tmp_path / "video", "mp4", "mpeg4")
    assert await failure(chambers, data[: data.index(b"moov")]) == "THUMB_VIDEO_FAILED"


async def test_a_track_in_another_file_is_not_followed(chambers: Chambers, tmp_path: Path) -> None:
    """S12: the sample data of a QuickTime track may lie in a file that the header names."""
    other = tmp_path / "other.mp4"
    data = pictures.borrowed_video(pictures.video(other, "mp4", "mpeg4"), other)
    allowed = {"enable_drefs": "1", "use_absolute_path": "1"}
    with av.open(io.BytesIO(data), "r", options=allowed) as followed:  # the file does what it is meant to do
        assert next(followed.decode(video=0)).width == 640
    assert await failure(chambers, data) == "THUMB_VIDEO_FAILED"


async def test_a_file_too_large_for_memory_is_refused_unread(chambers: Chambers) -> None:
    source, output = os.memfd_create("source"), os.memfd_create("output")
    os.write(source, pictures.encoded("png"))
    os.ftruncate(source, 2 << 30)
    with pytest.raises(ThumbnailFailed) as failed:
        await render(chambers, source, output, "jpeg", 64, boottime() + SECONDS)
    assert failed.value.code == "THUMB_TOO_LARGE"
    os.close(source)
    os.close(output)


async def test_a_late_thumbnail_is_a_time_out(chambers: Chambers) -> None:
    with pytest.raises(ThumbnailFailed) as failed:
        await thumbnail(chambers, pictures.png_bomb(14000, 14000), seconds=0.05)
    assert failed.value.code == "THUMB_TIMEOUT"
    assert (await thumbnail(chambers, pictures.encoded("png")))[0].width == 128


async def test_a_decoder_out_of_memory_fails_alone() -> None:
    data = io.BytesIO()
    Image.effect_noise((6000, 6000), 50).save(data, "bmp")
    async with renderers(1, replace(LIMITS, memory_bytes=260 << 20)) as small:
        with pytest.raises(ThumbnailFailed) as failed:
            await thumbnail(small, data.getvalue())
        assert failed.value.code in ("THUMB_DECODER_CRASHED", "THUMB_DECODE_FAILED")
        assert (await thumbnail(small, pictures.encoded("png")))[0].width == 128


WITHOUT_RIGHTS = """
import ctypes, os, sys
prctl = ctypes.CDLL(None).prctl
for capability in range(41):
    prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], sys.argv[2]])
"""
ONE = """
import anyio, os, sys
from actors.dedup.render import render, renderers
from supervisor.clock import boottime
assert int([l for l in open("/proc/self/status") if l.startswith("CapEff")][0].split()[1], 16) == 0
async def main():
    async with renderers(1) as chambers:
        source, output = os.open(sys.argv[1], os.O_RDONLY), os.memfd_create("output")
        made = await render(chambers, source, output, "webp", 64, boottime() + 600)
        print(made.width, made.height, chambers.guards["landlock"], chambers.guards["seccomp"])
anyio.run(main)
"""


async def test_a_replica_without_any_privilege_makes_thumbnails(chambers: Chambers, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(pictures.encoded("jpeg"))
    await thumbnail(chambers, pictures.encoded("jpeg"))
    command = [sys.executable, "-c", WITHOUT_RIGHTS, ONE, str(tmp_path / "picture")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=patient(60), check=False)
    assert result.stderr == ""
    guards = [str(chambers.guards[name]) for name in ("landlock", "seccomp")]
    assert result.stdout.split() == ["64", "32", *guards]
