"""Sample pictures and videos, made in code: sound ones of every format, and hostile ones.

The sound picture has four quadrants: red, green / blue, yellow, twice as wide as high; so its corners tell
how it was turned.
"""

import io
import struct
import zlib
from fractions import Fraction
from pathlib import Path

import av
import pillow_heif
import pyvips
from av.video.stream import VideoStream
from PIL import Image

RED, GREEN, BLUE, YELLOW = (220, 20, 20), (20, 200, 20), (20, 20, 220), (220, 220, 20)
CORNERS = (RED, GREEN, BLUE, YELLOW)


def quadrants(width: int = 640, height: int = 320) -> Image.Image:
    picture = Image.new("RGB", (width, height), YELLOW)
    picture.paste(RED, (0, 0, width // 2, height // 2))
    picture.paste(GREEN, (width // 2, 0, width, height // 2))
    picture.paste(BLUE, (0, height // 2, width // 2, height))
    return picture


def encoded(form: str, picture: Image.Image | None = None, **options: object) -> bytes:
    """A file in a format of Pillow, pillow-heif (heic) or libvips (avif)."""
    picture = picture or quadrants()
    if form == "avif":
        flat = pyvips.Image.new_from_memory(picture.tobytes(), picture.width, picture.height, 3, "uchar")
        return bytes(flat.copy(interpretation="srgb").heifsave_buffer(compression="av1", effort=0, Q=80))
    file = io.BytesIO()
    if form == "heic":
        pillow_heif.from_pillow(picture).save(file, quality=80, **options)
    else:
        picture.save(file, form, **options)
    return file.getvalue()


def oriented_jpeg(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded("jpeg", exif=exif)


def corners(data: bytes) -> tuple[int, int, tuple[str, ...]]:
    """Size and the names of the four corners' colours of a thumbnail."""
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    width, height = picture.size
    inset = 3
    points = [(x, y) for y in (inset, height - 1 - inset) for x in (inset, width - 1 - inset)]
    return width, height, tuple(_nearest(picture.getpixel(point)) for point in points)


def _nearest(pixel: object) -> str:
    assert isinstance(pixel, tuple)
    names = dict(zip(("red", "green", "blue", "yellow"), CORNERS, strict=True))
    names |= {"white": (255, 255, 255), "black": (0, 0, 0)}
    return min(names, key=lambda name: sum(abs(a - b) for a, b in zip(names[name], pixel, strict=True)))


def video(path: Path, form: str, codec: str, *, frames: int = 30, dark: int = 0, **options: str) -> bytes:
    """`frames` frames at 10 a second, the first `dark` of them black, in a container of `form`."""
    still = av.VideoFrame.from_image(quadrants())  # type: ignore[no-untyped-call]
    black = av.VideoFrame.from_image(Image.new("RGB", (640, 320)))  # type: ignore[no-untyped-call]
    with av.open(str(path), "w", format=form) as container:
        stream = container.add_stream(codec, rate=10, options={"g": "5", **options})
        assert isinstance(stream, VideoStream)
        stream.width, stream.height = 640, 320
        stream.pix_fmt = "yuv420p"
        for number in range(frames):
            frame = (black if number < dark else still).reformat(format="yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path.read_bytes()


def turned_video(data: bytes, degrees: int) -> bytes:
    """An MP4 whose track header says: show it turned by `degrees` with the clock."""
    matrix = {
        90: (0, 1, 0, -1, 0, 0), 180: (-1, 0, 0, 0, -1, 0), 270: (0, -1, 0, 1, 0, 0),
    }[degrees]  # fmt: skip
    at = data.index(b"tkhd") + 4
    version = data[at]
    at += 40 if version == 0 else 52
    one = 1 << 16
    a, b, u, c, d, v = (value * one for value in matrix)
    return data[:at] + struct.pack(">9i", a, b, u, c, d, v, 0, 0, 1 << 30) + data[at + 36 :]


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(width: int, height: int, data: bytes) -> bytes:
    """An eight-bit grey PNG with exactly this compressed data."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def png_bomb(width: int = 30000, height: int = 30000) -> bytes:
    """A whole, valid picture of zeros that is a thousand times smaller than its pixels."""
    packer = zlib.compressobj(9)
    row = bytes(width + 1)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    return png(width, height, data)


def gif_of_frames(count: int) -> bytes:
    frames = [Image.new("P", (64, 64), color=number % 256) for number in range(count)]
    file = io.BytesIO()
    frames[0].save(file, "gif", save_all=True, append_images=frames[1:])
    return file.getvalue()


def box(name: bytes, *content: bytes) -> bytes:
    body = b"".join(content)
    return struct.pack(">I", 8 + len(body)) + name + body


FTYP = box(b"ftyp", b"isom", bytes(4), b"isom", b"mp42")


def borrowed_video(whole: bytes, path: Path) -> bytes:
    """The MP4 `whole` without its samples: an alias in its header says that they lie in the file `path`."""
    at = whole.index(b"dref") - 4
    length = int.from_bytes(whole[at : at + 4], "big")
    reference = box(b"dref", bytes(4), struct.pack(">I", 1), _alias(path))
    data = whole[:at] + reference + whole[at + length :]
    for name in (b"moov", b"trak", b"mdia", b"minf", b"dinf"):
        place = data.rindex(name, 0, at) - 4
        grown = int.from_bytes(data[place : place + 4], "big") + len(reference) - length
        data = data[:place] + struct.pack(">I", grown) + data[place + 4 :]
    start = data.index(b"mdat") + 4
    size = int.from_bytes(data[start - 8 : start - 4], "big") - 8
    return data[:start] + bytes(size) + data[start + size :]


def _alias(path: Path) -> bytes:
    """An alias record of old Macintoshes: volume, file, and the path with colons."""
    colons = f"v{path}".replace("/", ":").encode()
    colons += bytes(len(colons) % 2)
    volume, file = b"\x01" + b"v".ljust(27, b"\0"), b"\x01" + b"f".ljust(63, b"\0")
    end = struct.pack(">HH", 2, len(colons)) + colons + struct.pack(">HH", 0xFFFF, 0)
    return box(b"alis", bytes(14), volume, bytes(12), file, bytes(36), end)


REFUSED = {
    "svg": b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="9"><image href="/x"/></svg>',
    "bare svg": b'<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>',
    "pdf": b"%PDF-1.7\n1 0 obj <<>> endobj\n",
    "postscript": b"%!PS-Adobe-3.0\nshowpage\n",
    "html": b"<!doctype html><script>alert(1)</script>",
    "zip": b"PK\x03\x04" + bytes(26),
    "playlist": b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
    "parts": b"ffconcat version 1.0\nfile /etc/passwd\n",
    "session": b"v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 1 RTP/AVP 96\n",
    "manifest": b'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"></MPD>',
    "vips": bytes.fromhex("b6a6f208") + bytes(60),
    "elf": b"\x7fELF" + bytes(60),
    "audio": b"ID3\x03" + bytes(60),
    "wave": b"RIFF\x24\x00\x00\x00WAVEfmt ",
    "text": b"BMW is a car, not a bitmap, whatever it begins with",
    "nothing": b"",
    "zeros": bytes(4096),
}
