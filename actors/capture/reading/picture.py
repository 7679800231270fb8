"""In a chamber: the bytes of a picture become grey pixels in which dark letters stand on white.

The format is known by its first bytes, each has one loader, and all other loaders of libvips are blocked:
SVG and PDF can name other files. Only the first page or frame is read. libvips is told to fail on damage.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pillow_heif
import pyvips
from PIL import Image as Pillow

from supervisor.chamber_failure import TaskFailed, clean

MAX_SIDE: Final = 30_000
MAX_PIXELS: Final = 60_000_000
# What the recognition works on: more than a letter page at 300 dots per inch, and bounded.
MAX_WORKED_PIXELS: Final = 16_000_000
HEAD_BYTES: Final = 64

LOADERS: Final = {
    "jpeg": ("jpegload_source", "VipsForeignLoadJpeg"),
    "png": ("pngload_source", "VipsForeignLoadPng"),
    "gif": ("gifload_source", "VipsForeignLoadNsgif"),
    "webp": ("webpload_source", "VipsForeignLoadWebp"),
    "tiff": ("tiffload_source", "VipsForeignLoadTiff"),
    "avif": ("heifload_source", "VipsForeignLoadHeif"),
}
TROUBLE: Final = (pyvips.Error, OSError, ValueError, SyntaxError, RuntimeError, EOFError)
# Strokes of letters are thinner than this many samples of the picture; cards and screens are wider.
SAMPLE: Final = 3
STROKE: Final = 7
# Letters cover less than half of a window of so many coarse samples.
COARSE: Final = 9
WINDOW: Final = 9
# From this contrast on ink is drawn in full, for secondary lines are grey; what is below the first is no ink:
# the marks of compression, and faint rules.
NO_CONTRAST: Final = 24
FULL_CONTRAST: Final = 120


def set_up() -> None:
    """Once in a process."""
    pyvips.cache_set_max(0)
    pyvips.block_untrusted_set(True)
    pyvips.operation_block_set("VipsForeignLoad", True)
    for _method, loader in LOADERS.values():
        pyvips.operation_block_set(loader, False)
    pillow_heif.options.DECODE_THREADS = 1
    Pillow.MAX_IMAGE_PIXELS = None  # bounded here, with an error instead of a warning


def kind_of(head: bytes) -> str | None:
    """The format of a file that begins so, if it is one that is decoded here."""
    if head[:4] == b"RIFF":
        return "webp" if head[8:12] == b"WEBP" else None
    if head[4:8] == b"ftyp":
        brands = {head[at : at + 4] for at in range(8, len(head) - 3, 4)}
        return "avif" if brands & {b"avif", b"avis"} else "heic" if brands & HEIC_BRANDS else None
    return next((kind for magic, kind in MAGIC if head.startswith(magic)), None)


MAGIC: Final = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"BM", "bmp"),
)
HEIC_BRANDS: Final = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))


@dataclass(frozen=True, slots=True)
class Prepared:
    """Eight-bit grey, one byte a pixel."""

    image: pyvips.Image

    @property
    def width(self) -> int:
        return int(self.image.width)

    @property
    def height(self) -> int:
        return int(self.image.height)

    def pixels(self) -> bytes:
        return bytes(self.image.write_to_memory())

    def scaled(self, factor: float) -> "Prepared":
        factor = min(factor, (MAX_WORKED_PIXELS / (self.width * self.height)) ** 0.5)
        return Prepared(self.image.resize(factor, kernel="cubic").copy_memory())

    def turned(self, degrees: float) -> "Prepared":
        turned = self.image.rotate(degrees, background=[255], interpolate=pyvips.Interpolate.new("bicubic"))
        return Prepared(turned.copy_memory())


def open_picture(handle: int) -> Prepared:
    kind = kind_of(os.pread(handle, HEAD_BYTES, 0))
    if kind is None:
        raise TaskFailed("NOT_A_PICTURE", "it is none of JPEG, PNG, WebP, GIF, TIFF, BMP, HEIC, AVIF")
    os.lseek(handle, 0, os.SEEK_SET)
    try:
        return Prepared(_dark_on_white(_grey(_loaded(kind, handle))))
    except TROUBLE as error:
        detail = clean(error).removeprefix("unable to call ")[-120:]
        raise TaskFailed("DAMAGED", f"it is damaged or cut off ({detail})") from error


def _loaded(kind: str, handle: int) -> pyvips.Image:
    if kind in HELD:
        return HELD[kind](handle)
    load = getattr(pyvips.Image, LOADERS[kind][0])
    picture: pyvips.Image = load(
        pyvips.Source.new_from_descriptor(handle), access="sequential", fail_on="error"
    )
    _check(picture.width, picture.height)
    return picture


def _check(width: int, height: int) -> None:
    """Before anything is decoded."""
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and width * height <= MAX_PIXELS):
        most = f"at most {MAX_PIXELS // 1_000_000} megapixels are read"
        raise TaskFailed("TOO_LARGE", f"{width} x {height} pixels are too many: {most}")


def _grey(picture: pyvips.Image) -> pyvips.Image:
    """Upright, on white, of a size that can be worked on. Here the source is decoded."""
    # The first reduction is libvips' own: it knows orientation, transparency, 16 bits, CMYK and profiles.
    width, height = picture.width, picture.height
    factor = min(1.0, (MAX_WORKED_PIXELS / (width * height)) ** 0.5)
    profile = {"export_profile": "srgb"} if picture.get_typeof("icc-profile-data") else {}
    longest = max(1, round(max(width, height) * factor))
    small = picture.thumbnail_image(longest, height=longest, size="down", **profile)
    if small.hasalpha():
        small = small.flatten(background=255)
    return small.colourspace("b-w").extract_band(0).cast("uchar").copy_memory()


def _dark_on_white(grey: pyvips.Image) -> pyvips.Image:
    """The distance of each pixel from the background around it: light letters on dark become dark on white.

    The background is the picture without strokes: without the dark ones, or without the light ones where that
    is nearer to what most of the surroundings are. So coloured cards and dark screens are alike, and the
    corners of a card leave no marks that look like letters.
    """
    if min(grey.width, grey.height) < COARSE * WINDOW:
        return grey if grey.avg() >= 128 else grey.invert()
    small = grey.shrink(SAMPLE, SAMPLE, ceil=True)
    without_dark, without_light = _thinnest(_widest(small)), _widest(_thinnest(small))
    mostly = grey.shrink(COARSE, COARSE, ceil=True).median(WINDOW).resize(COARSE / SAMPLE, kernel="nearest")
    mostly = mostly.crop(0, 0, small.width, small.height)
    is_light = (without_dark - mostly).abs() <= (without_light - mostly).abs()
    background = is_light.ifthenelse(without_dark, without_light).resize(SAMPLE, kernel="nearest")
    contrast = (grey - background.crop(0, 0, grey.width, grey.height)).abs()
    strength = 255 / (FULL_CONTRAST - NO_CONTRAST)
    return ((contrast - NO_CONTRAST) * -strength + 255).cast("uchar").copy_memory()


def _widest(image: pyvips.Image) -> pyvips.Image:
    """Light spreads by half a stroke."""
    return image.rank(STROKE, 1, STROKE - 1).rank(1, STROKE, STROKE - 1)


def _thinnest(image: pyvips.Image) -> pyvips.Image:
    return image.rank(STROKE, 1, 0).rank(1, STROKE, 0)


def _heic(handle: int) -> pyvips.Image:
    """libvips' wheel cannot decode HEVC; libheif turns the picture upright itself."""
    with os.fdopen(handle, "rb", closefd=False) as file:
        container = pillow_heif.open_heif(file, convert_hdr_to_8bit=True)
    picture = container[container.primary_index]
    _check(*picture.size)
    return _from_pillow(picture.to_pillow())


def _bmp(handle: int) -> pyvips.Image:
    with os.fdopen(handle, "rb", closefd=False) as file:
        picture = Pillow.open(file, formats=("BMP",))
        _check(*picture.size)
        return _from_pillow(picture)


def _from_pillow(picture: Pillow.Image) -> pyvips.Image:
    form = "RGBA" if "A" in picture.mode else "RGB"
    flat = picture.convert(form)
    made = pyvips.Image.new_from_memory(flat.tobytes(), flat.width, flat.height, len(form), "uchar")
    return made.copy(interpretation="srgb")


HELD: Final[dict[str, Callable[[int], pyvips.Image]]] = {"heic": _heic, "bmp": _bmp}
