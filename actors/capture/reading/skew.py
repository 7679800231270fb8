"""In a chamber: by how much a picture of text is turned.

Where the lines of a text lie level, the rows of pixels between them are empty: the sums of neighbouring rows
differ most. Tables and cards are measured by the same sums, which a fit of baselines loses its way in.
"""

from typing import Final

import pyvips

MAX_DEGREES: Final = 6.0
LEVEL_DEGREES: Final = 0.3
COARSE: Final = 1.0
FINE: Final = 0.25
COARSE_SIDE: Final = 450
FINE_SIDE: Final = 900
# Below this there are no lines of text.
SMALLEST: Final = 24
NEAREST: Final = pyvips.Interpolate.new("nearest")


def skew_of(image: pyvips.Image) -> float:
    """Degrees by which to turn the picture so that its lines are level; 0.0 where they are."""
    if min(image.width, image.height) < SMALLEST:
        return 0.0
    ink = image.invert()
    coarse = _best(_reduced(ink, COARSE_SIDE), 0.0, COARSE, round(MAX_DEGREES / COARSE))
    fine = _best(_reduced(ink, FINE_SIDE), coarse, FINE, round(COARSE / FINE) - 1)
    return 0.0 if abs(fine) < LEVEL_DEGREES else fine


def _reduced(ink: pyvips.Image, side: int) -> pyvips.Image:
    return ink.resize(min(1.0, side / max(ink.width, ink.height))).copy_memory()


def _best(ink: pyvips.Image, middle: float, step: float, steps: int) -> float:
    # Nearest to the middle first: what is not better than level stays level.
    angles = sorted((middle + step * number for number in range(-steps, steps + 1)), key=abs)
    return max(angles, key=lambda degrees: _unevenness(ink, degrees))


def _unevenness(ink: pyvips.Image, degrees: float) -> float:
    turned = ink.rotate(degrees, interpolate=NEAREST) if degrees else ink
    _, rows = turned.project()
    heights = rows.cast("float")
    change = heights.crop(0, 1, 1, heights.height - 1) - heights.crop(0, 0, 1, heights.height - 1)
    # Turned pictures are higher: the sum is what can be compared, not the mean.
    return float((change * change).avg() * change.height)
