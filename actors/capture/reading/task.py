"""The task of a chamber: the words of one picture, from descriptor to descriptor. Never loaded by a replica.

Request: {"languages": "eng+deu", "data_path": where the languages' data is}; descriptors: source, output.
The words go to the output, as words.py writes them; the result is {"bytes_size"}.
"""

import os
from typing import Any, Final

from actors.capture.reading import picture
from actors.capture.reading.recognition import Engines, good_scale, words_of
from actors.capture.reading.skew import skew_of
from actors.capture.reading.words import MAX_BYTES, Page, encode
from supervisor.chamber_failure import TaskFailed

ENGINES: Final = Engines()

picture.set_up()


def read(request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
    source, output = handles
    engine = ENGINES.of(request["data_path"], request["languages"])
    shown = picture.open_picture(source)
    if degrees := skew_of(shown.image):
        shown = shown.turned(degrees)
    scale = good_scale(engine, shown)
    if scale != 1.0:
        shown = shown.scaled(scale)
    try:
        page = Page(shown.width, shown.height, words_of(engine, shown))
    finally:
        engine.Clear()
    data = encode(page)
    if len(data) > MAX_BYTES:
        raise TaskFailed("TOO_MUCH_TEXT", "there is more text in it than a schedule has")
    os.lseek(output, 0, os.SEEK_SET)
    with os.fdopen(output, "wb", closefd=False) as file:
        file.write(data)
    return {"bytes_size": len(data)}
