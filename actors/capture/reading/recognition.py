"""In a chamber: tesseract, asked for words with their places.

Its engine is costly to make (it reads the language's data), so a child keeps one for each set of languages.
The picture is first looked at for its layout alone, which is cheap: how large its lines are decides the scale
in which they are read.
"""

from collections import OrderedDict
from collections.abc import Iterator
from statistics import median
from typing import Final

import tesserocr
from tesserocr import OEM, PSM, RIL, PyTessBaseAPI

from actors.capture.reading.picture import Prepared
from actors.capture.reading.words import Word

# The height of a line of text at which the networks read best, and what is near enough to leave it.
GOOD_LINE_HEIGHT: Final = 44.0
NEAR_ENOUGH: Final = (0.8, 1.3)
SMALLEST_SCALE, LARGEST_SCALE = 0.25, 4.0
MAX_ENGINES: Final = 2
# A line with a word below this is looked at again, by itself; so many of them in a picture.
DOUBTFUL: Final = 60.0
CLEARLY_SURER: Final = 15.0
MAX_SECOND_LOOKS: Final = 40

tesserocr.set_leptonica_log_level(tesserocr.LeptLogLevel.NONE)


class Engines:
    """The engines of one child, by their languages; the least used goes first."""

    def __init__(self) -> None:
        self._engines: OrderedDict[str, PyTessBaseAPI] = OrderedDict()

    def of(self, data_path: str, languages: str) -> PyTessBaseAPI:
        if languages not in self._engines:
            if len(self._engines) >= MAX_ENGINES:
                self._engines.popitem(last=False)[1].End()
            engine = PyTessBaseAPI(path=data_path, lang=languages, oem=OEM.LSTM_ONLY)
            # Its remarks go to /dev/null, which a chamber may not write to: without the file it would crash.
            engine.SetVariable("debug_file", "")
            self._engines[languages] = engine
        self._engines.move_to_end(languages)
        return self._engines[languages]


def good_scale(engine: PyTessBaseAPI, picture: Prepared) -> float:
    """The factor that brings the picture's lines to a good height; 1.0 where they are near it."""
    heights = list(_line_heights(engine, picture))
    if not heights:
        return 1.0
    factor = GOOD_LINE_HEIGHT / max(1.0, median(heights))
    if NEAR_ENOUGH[0] <= factor <= NEAR_ENOUGH[1]:
        return 1.0
    return min(LARGEST_SCALE, max(SMALLEST_SCALE, factor))


def _line_heights(engine: PyTessBaseAPI, picture: Prepared) -> Iterator[int]:
    _show(engine, picture, PSM.AUTO)
    lines = engine.AnalyseLayout()
    if lines is None:
        return
    for line in tesserocr.iterate_level(lines, RIL.TEXTLINE):
        box = line.BoundingBox(RIL.TEXTLINE)
        if box is not None:
            yield box[3] - box[1]


def words_of(engine: PyTessBaseAPI, picture: Prepared) -> list[Word]:
    # Sparse text: as much as can be found, in no order. Order is made of the places, by lines.py.
    _show(engine, picture, PSM.SPARSE_TEXT)
    lines = list(_lines(engine))
    doubtful = [line for line in lines if _confidence(line) < DOUBTFUL][:MAX_SECOND_LOOKS]
    sure = [line for line in lines if line not in doubtful]
    if doubtful:
        engine.SetPageSegMode(PSM.SINGLE_LINE)
    return [
        word for line in (*sure, *(_second_look(engine, picture, line) for line in doubtful)) for word in line
    ]


def _second_look(engine: PyTessBaseAPI, picture: Prepared, line: list[Word]) -> list[Word]:
    """The line by itself, with a little air around it; the better of both readings."""
    left, top = min(word.left for word in line), min(word.top for word in line)
    right, bottom = max(word.right for word in line), max(word.bottom for word in line)
    air = max(4, (bottom - top) // 4)
    left, top = max(0, left - air), max(0, top - air)
    right, bottom = min(picture.width, right + air), min(picture.height, bottom + air)
    engine.SetRectangle(left, top, right - left, bottom - top)
    again = [word for other in _lines(engine) for word in other]
    is_whole = _length(again) >= _length(line)  # to see less is no better look
    return again if is_whole and _confidence(again) > _confidence(line) + CLEARLY_SURER else line


def _confidence(line: list[Word]) -> float:
    """Of its letters and digits; signs are often doubtful, and matter less."""
    told = [word.confidence for word in line if any(letter.isalnum() for letter in word.text)]
    return min(told, default=100.0)


def _length(line: list[Word]) -> int:
    return sum(letter.isalnum() for word in line for letter in word.text)


def _lines(engine: PyTessBaseAPI) -> Iterator[list[Word]]:
    engine.Recognize()
    found = engine.GetIterator()
    if found is None:
        return
    line: list[Word] = []
    for word in tesserocr.iterate_level(found, RIL.WORD):
        if word.IsAtBeginningOf(RIL.TEXTLINE) and line:
            yield line
            line = []
        if word.Empty(RIL.WORD) or (box := word.BoundingBox(RIL.WORD)) is None:
            continue
        left, top, right, bottom = box
        text = word.GetUTF8Text(RIL.WORD).strip()
        if text and left < right and top < bottom:
            line.append(Word(text, left, top, right, bottom, word.Confidence(RIL.WORD)))
    if line:
        yield line


def _show(engine: PyTessBaseAPI, picture: Prepared, mode: int) -> None:
    engine.SetPageSegMode(mode)
    engine.SetImageBytes(picture.pixels(), picture.width, picture.height, 1, picture.width)
    engine.SetSourceResolution(300)
