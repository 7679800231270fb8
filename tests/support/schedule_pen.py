"""Text drawn into pictures, with faces that are there on every machine.

Pillow carries one outline font; it is drawn plain, bold, narrow and slanted. What it has no glyph for
(umlauts, the dash) is put together from what it has. Faces of the system join where they are installed.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, cast

from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]

SYSTEM: Final = Path("/usr/share/fonts/truetype")
BASE_OF: Final = dict(zip("äöüÄÖÜ", "aouAOU", strict=True))
DASH: Final = "\u2013"


@dataclass(frozen=True, slots=True)
class Face:
    name: str
    file: str | None = None
    stroke: float = 0.0
    """What is added to each side of a line, in ems."""
    width: float = 1.0
    slant: float = 0.0

    @property
    def is_here(self) -> bool:
        return self.file is None or (SYSTEM / self.file).is_file()


PLAIN: Final = Face("plain")
BOLD: Final = Face("bold", stroke=0.016)
NARROW: Final = Face("narrow", width=0.88)
WIDE: Final = Face("wide", width=1.12)
SLANTED: Final = Face("slanted", slant=0.18)
SANS: Final = Face("sans", "dejavu/DejaVuSans.ttf")
SERIF: Final = Face("serif", "dejavu/DejaVuSerif.ttf")
MONO: Final = Face("mono", "dejavu/DejaVuSansMono.ttf")
LIBERATION: Final = Face("liberation", "liberation/LiberationSans-Regular.ttf")


def at_hand(face: Face) -> Face:
    """The face, or one that is everywhere and about as different."""
    return face if face.is_here else replace(WIDE, name=face.name)


@cache
def _font(file: str | None, size: int) -> ImageFont.FreeTypeFont:
    if file is not None:
        return ImageFont.truetype(str(SYSTEM / file), size)
    return cast("ImageFont.FreeTypeFont", ImageFont.load_default(size))


def text_mask(text: str, face: Face, size: int) -> Image.Image:
    """The text as a grey mask; its top is the top of the line, whatever letters are in it."""
    font = _font(face.file, size)
    stroke = face.stroke * size
    wide = Image.new("L", (int(font.getlength(text)) + 2 * size, int(1.5 * size)))
    pen = ImageDraw.Draw(wide)
    x = float(size // 4)
    for part in _parts(text, composed=face.file is None):
        x += _draw(pen, part, x, font, size, stroke)
    mask = wide.crop((0, 0, int(x) + size // 4, wide.height))
    if face.slant:
        shift = face.slant * size
        matrix = (1, face.slant, -shift, 0, 1, 0)
        turned = mask.transform(
            (mask.width + int(shift), mask.height), Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC
        )
        mask = turned
    if face.width != 1.0:
        mask = mask.resize((round(mask.width * face.width), mask.height), Image.Resampling.LANCZOS)
    return mask


def _parts(text: str, *, composed: bool) -> list[str]:
    if not composed:
        return [text]
    parts, run = [], ""
    for letter in text:
        if letter in BASE_OF or letter == DASH:
            parts += [run, letter]
            run = ""
        else:
            run += letter
    return [part for part in (*parts, run) if part]


def _draw(
    pen: ImageDraw.ImageDraw, part: str, x: float, font: ImageFont.FreeTypeFont, size: int, stroke: float
) -> float:
    if part == DASH and font.getname()[0] == "Aileron":
        top = round(0.72 * size)
        pen.rectangle((x + 0.05 * size, top, x + 0.5 * size, top + max(1, round(0.07 * size))), fill=255)
        return 0.56 * size
    letter = BASE_OF.get(part, part) if len(part) == 1 and font.getname()[0] == "Aileron" else part
    pen.text((x, 0.1 * size), letter, fill=255, font=font, stroke_width=stroke)
    length = font.getlength(letter)
    if letter != part:
        _dots(pen, x, length, size, capital=part.isupper())
    return length


def _dots(pen: ImageDraw.ImageDraw, x: float, length: float, size: int, *, capital: bool) -> None:
    top, dot = (0.11 if capital else 0.27) * size, 0.115 * size
    for middle in (x + 0.32 * length, x + 0.68 * length):
        pen.ellipse((middle - dot / 2, top, middle + dot / 2, top + dot), fill=255)


@dataclass(slots=True)
class Sheet:
    """A picture that is being drawn; sizes are in pixels, places are the top left of a text."""

    image: Image.Image
    face: Face
    ink: Colour
    paper: Colour

    @classmethod
    def blank(cls, width: int, height: int, face: Face, *, dark: bool = False) -> "Sheet":
        ink, paper = ((235, 235, 240), (18, 18, 22)) if dark else ((20, 20, 24), (255, 255, 255))
        return cls(Image.new("RGB", (width, height), paper), at_hand(face), ink, paper)

    def faded(self, share: float = 0.6) -> Colour:
        """A weaker ink, such as secondary lines have."""
        red, green, blue = (
            round(share * ink + (1 - share) * paper) for ink, paper in zip(self.ink, self.paper, strict=True)
        )
        return red, green, blue

    def text(
        self, x: float, y: float, text: str, size: int, *, ink: Colour | None = None, bold: bool = False
    ) -> int:
        """Draws, and says where the text ends."""
        face = replace(self.face, stroke=max(self.face.stroke, 0.016)) if bold else self.face
        mask = text_mask(text, face, size)
        left = round(x) - size // 4
        self.image.paste(Image.new("RGB", mask.size, ink or self.ink), (left, round(y)), mask)
        return left + mask.width

    def width_of(self, text: str, size: int) -> int:
        return text_mask(text, self.face, size).width - size // 2

    def box(
        self, left: float, top: float, right: float, bottom: float, colour: Colour, radius: int = 0
    ) -> None:
        ImageDraw.Draw(self.image).rounded_rectangle((left, top, right, bottom), radius, fill=colour)

    def rule(self, left: float, top: float, right: float, bottom: float) -> None:
        ImageDraw.Draw(self.image).line((left, top, right, bottom), fill=self.faded(0.35), width=1)
