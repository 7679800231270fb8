"""A small library of real files: pictures, a short video and many small texts, with copies among them."""

import os
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Final

TEXTS: Final = 300
EVERY_COPY: Final = 5
PICTURES: Final = 12
FORMS: Final = ("jpg", "png", "webp")
WIDTH, HEIGHT = 640, 480
FRAMES: Final = 20


def make_library(root: Path) -> bool:
    """False where there is something already. It appears under its name when it is whole."""
    if root.exists():
        return False
    draft = root.with_name(f".{root.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        _texts(draft / "notes")
        _pictures(draft / "pictures", draft / "from the phone")
        _video(draft / "videos")
        try:
            draft.rename(root)
        except OSError:
            if root.exists():  # another start was faster
                return False
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return True


def _texts(folder: Path) -> None:
    for number in range(TEXTS):
        here = folder / f"{2020 + number % 5}"
        here.mkdir(parents=True, exist_ok=True)
        original = number - 1 if number % EVERY_COPY == 1 else number
        text = f"Note {original}\n\n" + f"Something worth remembering, number {original}.\n" * (
            1 + original % 7
        )
        (here / f"note {number:03}.txt").write_text(text, encoding="utf-8")


def _pictures(folder: Path, copies: Path) -> None:
    folder.mkdir(parents=True)
    copies.mkdir(parents=True)
    for number, data in enumerate(_encoded_pictures()):
        form = FORMS[number % len(FORMS)]
        (folder / f"picture {number:02}.{form}").write_bytes(data)
        if number % 3 == 0:
            (copies / f"IMG_{1000 + number}.{form}").write_bytes(data)


def _encoded_pictures() -> Iterator[bytes]:
    for number in range(PICTURES):
        yield _picture(number / PICTURES, f"Picture {number}").write_to_buffer(
            f".{FORMS[number % len(FORMS)]}"
        )


# pyvips has no types
def _picture(turn: float, label: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """A gradient of one hue with a label on it."""
    import pyvips  # noqa: PLC0415  a library of native code: for the few that make a sample

    place = pyvips.Image.xyz(WIDTH, HEIGHT)
    across, down = place[0] * (100 / WIDTH), place[1] * (60 / HEIGHT)
    hue = (across * 0 + turn * 360).copy()
    colours = (90 - down).bandjoin([across * 0.4 + 30, hue]).copy(interpretation="lch").colourspace("srgb")
    text = pyvips.Image.text(label, dpi=300).embed(40, HEIGHT - 120, WIDTH, HEIGHT)
    return text.ifthenelse([255, 255, 255], colours, blend=True).cast("uchar").copy(interpretation="srgb")


def _video(folder: Path) -> None:
    import av  # noqa: PLC0415  as above
    from av.video.stream import VideoStream  # noqa: PLC0415

    folder.mkdir(parents=True)
    with av.open(str(folder / "clip.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        assert isinstance(stream, VideoStream)  # noqa: S101  the codec is one of video
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(FRAMES):
            pixels = _picture(number / FRAMES, f"Second {number // 10}").write_to_memory()
            frame = av.VideoFrame(WIDTH, HEIGHT, "rgb24")
            frame.planes[0].update(pixels)
            frame.pts, frame.time_base = number, Fraction(1, 10)
            container.mux(stream.encode(frame.reformat(format="yuv420p")))
        container.mux(stream.encode(None))
