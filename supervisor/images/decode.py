"""Pictures: header, bounds, and a picture that is small before libvips ever holds it.

Each format has one loader, chosen by the sniffed type; all other loaders of libvips are blocked. Only the
first page or frame is read. libvips is told to fail on damage: its own thumbnail call would paint a cut file
grey.
"""

import os
from collections.abc import Callable
from typing import Any

import pillow_heif
import pyvips
from PIL import Image as Pillow

from supervisor.images.failure import DECODE_FAILED, TOO_LARGE, failed

MAX_SIDE = 65535
MAX_PIXELS = 200_000_000
# What cannot be read in stripes is held whole, file and pixels.
MAX_PIXELS_HELD = 100_000_000
MAX_FILE_BYTES = 1 << 30
MAX_FILE_BYTES_HELD = 1 << 28

LOADERS = {
    "jpeg": "VipsForeignLoadJpeg",
    "png": "VipsForeignLoadPng",
    "gif": "VipsForeignLoadNsgif",
    "webp": "VipsForeignLoadWebp",
    "tiff": "VipsForeignLoadTiff",
    "avif": "VipsForeignLoadHeif",
}


def set_up() -> None:
    """Once in a process."""
    pyvips.cache_set_max(0)
    pyvips.block_untrusted_set(True)
    pyvips.operation_block_set("VipsForeignLoad", True)
    for loader in LOADERS.values():
        pyvips.operation_block_set(loader, False)
    pillow_heif.options.DECODE_THREADS = 1
    Pillow.MAX_IMAGE_PIXELS = None  # bounded here, with an error instead of a warning


def open_image(kind: str, handle: int, max_dimension: int) -> tuple[pyvips.Image, int, int]:
    """The picture, not smaller than needed for `max_dimension`, and its true width and height."""
    held = kind in HELD
    if os.fstat(handle).st_size > (MAX_FILE_BYTES_HELD if held else MAX_FILE_BYTES):
        raise failed(TOO_LARGE, "the file is too large to be decoded")
    os.lseek(handle, 0, os.SEEK_SET)
    try:
        return HELD[kind](handle) if held else _stream(kind, handle, max_dimension)
    except (pyvips.Error, OSError, ValueError, SyntaxError, RuntimeError, EOFError) as error:
        raise failed(DECODE_FAILED, "the picture is damaged or not readable", error) from error


def check_area(width: int, height: int, max_pixels: int) -> None:
    """Before anything is decoded."""
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and width * height <= max_pixels):
        limit = f"at most {max_pixels // 1_000_000} megapixels are decoded"
        raise failed(TOO_LARGE, f"{width} x {height} pixels are too many: {limit}")


def _stream(kind: str, handle: int, max_dimension: int) -> tuple[pyvips.Image, int, int]:
    source = pyvips.Source.new_from_descriptor(handle)
    header = _load(kind, source)
    width, height = header.width, header.height
    check_area(width, height, MAX_PIXELS)
    shrink = max(width, height) / max_dimension
    if kind == "jpeg" and shrink >= 2:
        header = _load(kind, source, shrink=max(step for step in (2, 4, 8) if step <= shrink))
    elif kind == "webp" and shrink > 1:
        header = _load(kind, source, scale=1 / shrink)
    return header, width, height


def _load(kind: str, source: pyvips.Source, **options: Any) -> pyvips.Image:
    operation = "heif" if kind == "avif" else kind
    load = getattr(pyvips.Image, f"{operation}load_source")
    image: pyvips.Image = load(source, access="sequential", fail_on="error", **options)
    return image


def _heic(handle: int) -> tuple[pyvips.Image, int, int]:
    """libvips' wheel cannot decode HEVC; libheif applies the orientation itself."""
    with os.fdopen(handle, "rb", closefd=False) as file:
        container = pillow_heif.open_heif(file, convert_hdr_to_8bit=True)
    picture = container[container.primary_index]
    width, height = picture.size
    check_area(width, height, MAX_PIXELS_HELD)
    if picture.mode not in BANDS:
        raise failed(DECODE_FAILED, "the picture has pixels of an unknown form")
    bands = BANDS[picture.mode]
    image = from_rows(picture.data, width, height, bands, picture.stride)
    if profile := picture.info.get("icc_profile"):
        image = image.copy()
        image.set_type(pyvips.GValue.blob_type, "icc-profile-data", profile)
    return image, width, height


def _bmp(handle: int) -> tuple[pyvips.Image, int, int]:
    with os.fdopen(handle, "rb", closefd=False) as file:
        picture = Pillow.open(file, formats=("BMP",))
        width, height = picture.size
        check_area(width, height, MAX_PIXELS_HELD)
        data = picture.convert("RGB").tobytes()
    return from_rows(data, width, height, 3, 3 * width), width, height


BANDS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}
HELD: dict[str, Callable[[int], tuple[pyvips.Image, int, int]]] = {"heic": _heic, "bmp": _bmp}


def from_rows(data: Any, width: int, height: int, bands: int, stride: int) -> pyvips.Image:
    """Eight-bit pixels in rows of `stride` bytes."""
    rows = pyvips.Image.new_from_memory(data, stride, height, 1, "uchar")
    pixels = rows.crop(0, 0, width * bands, height).bandfold(factor=bands)
    return pixels.copy(interpretation="srgb" if bands > 2 else "b-w")
