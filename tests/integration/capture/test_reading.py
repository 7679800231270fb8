"""Pictures through the chamber: every kind, every trouble, and files that were made to do harm."""

import io
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from PIL import Image

from actors.capture.reading import (
    LIMITS,
    MAX_PICTURE_BYTES,
    MAX_PICTURES,
    Entry,
    LanguageMissing,
    Reading,
    Unreadable,
    payload_of,
    read_schedule,
    readers,
)
from supervisor.chamber import Chambers
from supervisor.clock import boottime
from tests.support import pictures
from tests.support import schedule_words as words
from tests.support.schedule_pen import PLAIN, Sheet
from tests.support.schedules import DAY, encoded, listed

ENTRIES = [
    Entry("09:00", "10:30", "Design review", "Room 12"),
    Entry("11:15", "12:00", "Standup", "Main hall"),
]
SECONDS = 100.0


@pytest.fixture(scope="module")
async def chambers() -> AsyncIterator[Chambers]:
    async with readers(1) as pool:
        yield pool


async def read(
    chambers: Chambers, *data: bytes, languages: str = "eng", day: date = DAY, seconds: float = SECONDS
) -> Reading:
    return await read_schedule(
        data, day=day, languages=languages, equipment=chambers, deadline=lambda: boottime() + seconds
    )


async def refusal(chambers: Chambers, *data: bytes, **options: Any) -> str:
    with pytest.raises(Unreadable) as refused:
        await read(chambers, *data, **options)
    message = str(refused.value)
    assert message.isprintable()
    assert len(message) <= 400
    return message


def drawing() -> Image.Image:
    return listed(ENTRIES, PLAIN, 28, words.tight).image


def in_sixteen_bits() -> bytes:
    grey = drawing().convert("I;16").point(lambda value: value * 257)
    return encoded(grey)


def animated(form: str) -> bytes:
    file = io.BytesIO()
    first = drawing()
    first.save(file, form, save_all=True, append_images=[Image.new("RGB", first.size, "red")], duration=100)
    return file.getvalue()


def turned_by_exif() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    drawing().rotate(90, expand=True).save(file, "jpeg", quality=90, exif=exif)
    return file.getvalue()


def see_through() -> bytes:
    """Letters on nothing."""
    solid = drawing().convert("L")
    letters = Image.new("LA", solid.size, (0, 0))
    letters.putalpha(solid.point(lambda value: 255 - value))
    return encoded(letters)


SOUND: dict[str, Callable[[], bytes]] = {
    "jpeg": lambda: pictures.encoded("jpeg", drawing(), quality=80),
    "webp": lambda: pictures.encoded("webp", drawing()),
    "bmp": lambda: pictures.encoded("bmp", drawing()),
    "heic": lambda: pictures.encoded("heic", drawing()),
    "tiff": lambda: pictures.encoded("tiff", drawing()),
    "palette": lambda: encoded(drawing().convert("P")),
    "16 bits": in_sixteen_bits,
    "cmyk": lambda: pictures.encoded("jpeg", drawing().convert("CMYK"), quality=90),
    "animated gif": lambda: animated("gif"),
    "animated webp": lambda: animated("webp"),
    "turned by exif": turned_by_exif,
    "see-through": see_through,
}


@pytest.mark.parametrize("kind", SOUND)
async def test_every_kind_of_picture(chambers: Chambers, kind: str) -> None:
    assert list((await read(chambers, SOUND[kind]())).entries) == ENTRIES


async def test_a_reading_becomes_a_payload(chambers: Chambers) -> None:
    """R004-43, C-65: the date of the session's day where the picture names none."""
    reading = await read(chambers, encoded(drawing()))
    assert payload_of(reading) == {
        "schedule_date": "2026-11-16",
        "entries": [
            {"start": "09:00", "end": "10:30", "title": "Design review", "location": "Room 12"},
            {"start": "11:15", "end": "12:00", "title": "Standup", "location": "Main hall"},
        ],
    }
    assert reading.words >= 10
    assert 60 < reading.confidence <= 100


async def test_pictures_are_read_in_their_order(chambers: Chambers) -> None:
    """R004-28."""
    first, second = (encoded(listed([entry], PLAIN, 28, words.tight).image) for entry in ENTRIES)
    assert list((await read(chambers, first, second)).entries) == ENTRIES
    assert list((await read(chambers, second, first)).entries) == ENTRIES[::-1]


def bomb() -> bytes:
    """A header that promises 50000 x 50000 pixels, and a little of them."""
    return pictures.png(50_000, 50_000, zlib.compress(bytes(1 << 20)))


def cut_off() -> bytes:
    data = encoded(drawing())
    return data[: len(data) // 2]


HARMFUL: dict[str, tuple[Callable[[], bytes], str]] = {
    "truncated": (cut_off, "damaged or cut off"),
    "bomb": (bomb, "50000 x 50000 pixels are too many"),
    "svg": (lambda: pictures.REFUSED["svg"], "it is none of JPEG"),
    "pdf": (lambda: pictures.REFUSED["pdf"], "it is none of JPEG"),
    "text": (lambda: b"09:00 Standup\n", "it is none of JPEG"),
    "zeros": (lambda: bytes(4096), "it is none of JPEG"),
    "bitmap": (lambda: b"BM" + bytes(60), "damaged or cut off"),
    "header alone": (lambda: b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR", "damaged or cut off"),
}


@pytest.mark.parametrize("harm", HARMFUL)
async def test_harmful_files_are_refused_by_name(chambers: Chambers, harm: str) -> None:
    """An unreadable image has a reason that a person understands, and which image it is."""
    make, reason = HARMFUL[harm]
    message = await refusal(chambers, encoded(drawing()), make())
    assert message.startswith("picture 2 of 2 is not a picture that can be read: ")
    assert reason in message


async def test_nothing_and_too_much_are_refused_before_a_child_is_asked(chambers: Chambers) -> None:
    assert await refusal(chambers) == "a schedule is read from 1 to 20 pictures, not 0"
    assert "not 21" in await refusal(chambers, *[b"x"] * (MAX_PICTURES + 1))
    assert await refusal(chambers, b"x", b"") == "picture 2 of 2 is empty"
    assert "at most 32 MiB" in await refusal(chambers, bytes(MAX_PICTURE_BYTES + 1))


async def test_no_text_and_no_times_are_told_apart(chambers: Chambers) -> None:
    blank = encoded(Image.new("RGB", (300, 200), "white"))
    assert await refusal(chambers, blank, blank) == "no text was found in the 2 pictures"
    sheet = Sheet.blank(900, 200, PLAIN)
    sheet.text(40, 60, "Nothing to do today", 36)
    words_only = await refusal(chambers, encoded(sheet.image))
    assert words_only == "text was found in the picture, but no line with a time and a title"


async def test_the_smallest_picture_has_no_text(chambers: Chambers) -> None:
    assert "no text" in await refusal(chambers, encoded(Image.new("RGB", (1, 1))))


async def test_a_language_that_is_not_there_names_its_package(chambers: Chambers) -> None:
    with pytest.raises(LanguageMissing, match="install tessdata-xyz") as missing:
        await read(chambers, encoded(drawing()), languages="eng+xyz")
    assert "install" in missing.value.advice
    assert "languages are named like" in await refusal(chambers, b"x", languages="../../etc")


async def test_a_picture_has_a_limited_time(chambers: Chambers) -> None:
    """Once its time is over and has not been prolonged, it is given up."""
    past = boottime()
    with pytest.raises(Unreadable, match="picture 1 of 1 took too long to read"):
        await read_schedule(
            [encoded(drawing())], day=DAY, languages="eng", equipment=chambers, deadline=lambda: past
        )


async def test_harm_ends_a_child_and_the_next_picture_is_read() -> None:
    noise = Image.effect_noise((7000, 7000), 90)
    async with readers(1, replace(LIMITS, cpu_seconds=2)) as hurried:
        assert (
            await refusal(hurried, encoded(noise, "jpeg", quality=30))
            == "picture 1 of 1 took too much computing"
        )
        assert list((await read(hurried, encoded(drawing()))).entries) == ENTRIES
