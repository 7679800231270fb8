"""Photos as a telephone takes them: 12 megapixels or fewer, detail of every size, some of them turned."""

from pathlib import Path
from typing import Any, Final

import pyvips

DIFFERENT: Final = 6
# every third is as somebody sent it on
SMALLER: Final = 0.4
ORIENTATIONS: Final = (1, 1, 6, 1, 8, 3)
COARSE: Final = 16
FADING: Final = 0.55
GRAIN: Final = 3.0
"""Files come out as large as those of telephones, with 2 to 3 MB."""


def make(folder: Path, count: int, width: int) -> None:
    """All but a few differ in their last bytes only: a decoder has the same to do, and no file is another."""
    folder.mkdir(parents=True)
    encoded = [_photo(number, width) for number in range(min(DIFFERENT, count))]
    for number in range(count):
        content = encoded[number % len(encoded)] + f"{number:08}".encode()
        (folder / f"IMG_{number:05}.jpg").write_bytes(content)


def _photo(number: int, width: int) -> bytes:
    wide = int(width * (SMALLER if number % 3 == 2 else 1))
    high = wide * 3 // 4
    light = _surface(wide, number).crop(0, 0, wide, high)
    tint = [_noise(COARSE, 12, 100 * number + band).resize(wide / COARSE) for band in range(3)]
    colours = tint[0].bandjoin(tint[1:]).crop(0, 0, wide, high)
    picture = (light + colours + 128).cast("uchar").copy(interpretation="srgb").copy_memory()
    picture.set_type(pyvips.GValue.gint_type, "orientation", ORIENTATIONS[number % len(ORIENTATIONS)])
    return bytes(picture.jpegsave_buffer(Q=90))


def _surface(side: int, seed: int) -> Any:
    """Noise upon noise, each layer of half the size and weaker."""
    strength = 40.0
    picture = _noise(COARSE, strength, seed)
    while picture.width < side:
        strength *= FADING
        picture = picture.resize(2)
        picture = (picture + _noise(picture.width, max(strength, GRAIN), seed + picture.width)).copy_memory()
    return picture


def _noise(side: int, strength: float, seed: int) -> Any:
    return pyvips.Image.gaussnoise(side, side, sigma=strength, mean=0, seed=seed)
