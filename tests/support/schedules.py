"""Drawn schedules and what is to be read from them: lists, tables, cards, columns and telephone screens."""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Final

from PIL import Image

from actors.capture.reading import Entry
from tests.support import schedule_words as words
from tests.support.schedule_pen import (
    BOLD,
    LIBERATION,
    MONO,
    NARROW,
    PLAIN,
    SANS,
    SERIF,
    SLANTED,
    WIDE,
    Face,
    Sheet,
)
from tests.support.schedule_words import Author, Writing

DAY: Final = date(2026, 11, 16)
OTHER_DAY: Final = date(2026, 11, 19)
PHONE: Final = (1170, 2532)


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    pictures: Sequence[bytes]
    entries: Sequence[Entry]
    languages: str = "eng"
    date: date = DAY
    """What the picture says; the session's day is always DAY."""


def encoded(image: Image.Image, form: str = "png", **options: int) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def listed(entries: Sequence[Entry], face: Face, size: int, write: Writing, *, dark: bool = False) -> Sheet:
    """One line an entry, the place behind an at sign."""
    sheet = Sheet.blank(38 * size, (3 + 2 * len(entries)) * size, face, dark=dark)
    for number, entry in enumerate(entries):
        place = f" @ {entry.location}" if entry.location else ""
        sheet.text(
            size, (1 + 2 * number) * size, f"{write(entry.start, entry.end)}  {entry.title}{place}", size
        )
    return sheet


def agenda(
    sheet: Sheet, entries: Sequence[Entry], size: int, write: Writing, *, left: int, top: int, indent: float
) -> int:
    """Times on the left, titles beside them, places below the titles; where it ends."""
    for entry in entries:
        sheet.text(left, top, write(entry.start, entry.end), size)
        sheet.text(left + indent * size, top, entry.title, size, bold=True)
        if entry.location:
            sheet.text(left + indent * size, top + 1.35 * size, entry.location, size, ink=sheet.faded())
        top += round((4.2 if entry.location else 2.6) * size)
    return top


def table(
    entries: Sequence[Entry],
    face: Face,
    size: int,
    write: Writing,
    *,
    heads: Sequence[str] = (),
    ruled: bool = True,
) -> Sheet:
    """Time, title, place; with four heads the ends have a column of their own."""
    cells = [[write(e.start, e.end), e.title, e.location or ""] for e in entries]
    if len(heads) == 4:
        cells = [[e.start, e.end or "", e.title, e.location or ""] for e in entries]
    rows = [list(heads), *cells] if heads else cells
    sheet = Sheet.blank(10, 10, face)
    widths = [
        max(sheet.width_of(row[column], size) for row in rows) + 2 * size for column in range(len(rows[0]))
    ]
    sheet = Sheet.blank(sum(widths) + 2 * size, round((2 + 2.4 * len(rows)) * size), face)
    for number, row in enumerate(rows):
        top = round((1 + 2.4 * number) * size)
        if heads and number == 0:
            sheet.box(size, top, size + sum(widths), top + 2.4 * size, (228, 232, 240))
        for column, cell in enumerate(row):
            if cell:
                sheet.text(
                    size + sum(widths[:column]) + 0.7 * size,
                    top + 0.55 * size,
                    cell,
                    size,
                    bold=number == 0 and bool(heads),
                )
        if ruled:
            sheet.rule(size, top, size + sum(widths), top)
    if ruled:
        for column in range(len(widths) + 1):
            x = size + sum(widths[:column])
            sheet.rule(x, size, x, (1 + 2.4 * len(rows)) * size)
        sheet.rule(size, (1 + 2.4 * len(rows)) * size, size + sum(widths), (1 + 2.4 * len(rows)) * size)
    return sheet


def cards(
    sheet: Sheet,
    entries: Sequence[Entry],
    size: int,
    write: Writing,
    *,
    left: int,
    top: int,
    width: int,
    title_first: bool = False,
    tinted: bool = True,
) -> int:
    """Boxes with the time, the title and the place in lines of their own; where they end."""
    tints = (
        ((52, 90, 160), (28, 120, 90), (150, 60, 70))
        if sheet.paper[0] < 128
        else ((226, 238, 255), (232, 248, 232), (255, 240, 224))
    )
    for number, entry in enumerate(entries):
        lines = [(write(entry.start, entry.end), False), (entry.title, True)]
        if title_first:
            lines.reverse()
        if entry.location:
            lines.append((entry.location, False))
        height = round((1.4 * len(lines) + 1.2) * size)
        if tinted:
            sheet.box(left, top, left + width, top + height, tints[number % 3], size // 2)
        for line, (text, bold) in enumerate(lines):
            sheet.text(left + size, top + (0.5 + 1.4 * line) * size, text, size, bold=bold)
        top += height + size
    return top


def stacked(sheet: Sheet, entries: Sequence[Entry], size: int, *, left: int, top: int) -> int:
    """The start above the end, as telephones list a day."""
    for entry in entries:
        sheet.text(left, top, entry.start, size)
        sheet.text(left, top + 1.3 * size, entry.end or "", size, ink=sheet.faded())
        sheet.text(left + 5 * size, top, entry.title, size)
        if entry.location:
            sheet.text(left + 5 * size, top + 1.3 * size, entry.location, size, ink=sheet.faded())
        top += 4 * size
    return top


def phone(face: Face, heading: str, *, dark: bool = False, height: int = PHONE[1]) -> Sheet:
    """A screen with its clock, which is no entry."""
    sheet = Sheet.blank(PHONE[0], height, face, dark=dark)
    status_bar(sheet)
    sheet.text(60, 210, heading, 64, bold=True)
    return sheet


def status_bar(sheet: Sheet) -> None:
    sheet.text(120, 50, "9:41", 46, bold=True)
    sheet.text(860, 50, "5G", 40)
    sheet.text(960, 50, "87%", 40)


def turned(image: Image.Image, degrees: float) -> Image.Image:
    return image.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=image.getpixel((0, 0)))


def scrolled(author: Author) -> Sample:
    """One long page, seen in three overlapping screens."""
    entries = author.day(12)
    page = Sheet.blank(PHONE[0], 5400, PLAIN)
    cards(page, entries, 48, words.plain, left=60, top=60, width=1040)
    screens = []
    for top in (0, 1300, 2500):
        sheet = phone(PLAIN, "Thursday, November 19")
        sheet.image.paste(page.image.crop((0, top, PHONE[0], top + 2200)), (0, 332))
        screens.append(encoded(sheet.image))
    return Sample("three overlapping screens", screens, entries, date=OTHER_DAY)


def drawn(version: int) -> Iterator[Sample]:
    """The whole set; another version has other titles, times, places and sizes."""
    author = Author(version)
    yield from _lists(author)
    yield from _tables(author)
    yield from _cards(author)
    yield from _screens(author)
    yield scrolled(author)


def _lists(author: Author) -> Iterator[Sample]:
    grow = 2 * author.version
    faces = (PLAIN, SANS, SERIF, MONO, NARROW, BOLD, LIBERATION, SLANTED)
    for face, write in zip(faces, words.WRITINGS, strict=True):
        language = "deu" if write is words.dotted else "eng"
        entries = author.day(4, places=write is not words.spaced, german=language == "deu")
        sheet = listed(entries, face, 24 + grow, write)
        yield Sample(f"list, {face.name}, {write.__name__}", [encoded(sheet.image)], entries, language)
    entries = author.day(4, places=False, step=30)
    yield Sample("list, half hours", [encoded(listed(entries, WIDE, 28, words.decimal).image)], entries)
    for face, size in ((PLAIN, 13), (SANS, 14), (SERIF, 60 + grow)):
        entries = author.day(5)
        yield Sample(
            f"list, {face.name} of {size}", [encoded(listed(entries, face, size, words.tight).image)], entries
        )
    entries = author.day(5)
    yield Sample("list, dark", [encoded(listed(entries, SANS, 26, words.plain, dark=True).image)], entries)
    for degrees in (2.0, -2.0):
        entries = author.day(5)
        image = turned(listed(entries, PLAIN, 30, words.plain).image, degrees)
        yield Sample(f"list, turned by {degrees}", [encoded(image)], entries)
    entries = author.day(5, ends=False)
    image = listed(entries, SANS, 22, words.twelve).image
    yield Sample("list, JPEG, starts only", [encoded(image, "jpeg", quality=40)], entries)


def _tables(author: Author) -> Iterator[Sample]:
    heads = (("Time", "Event", "Room"), (), ("Start", "End", "Title", "Location"), ())
    for number, (head, face) in enumerate(zip(heads, (SANS, PLAIN, NARROW, SERIF), strict=True)):
        entries = author.day(5)
        write = words.twelve if number == 3 else words.tight
        sheet = table(entries, face, 20 + 2 * number, write, heads=head, ruled=number != 1)
        yield Sample(f"table {number}", [encoded(sheet.image)], entries)
    entries = author.day(4, german=True)
    sheet = table(entries, SANS, 24, words.dotted, heads=("Zeit", "Thema", "Ort"))
    yield Sample("table, German", [encoded(sheet.image)], entries, "deu")
    entries = author.day(5)
    sheet = table(entries, PLAIN, 26, words.plain, heads=("Time", "What", "Where"))
    yield Sample("table, JPEG, turned", [encoded(turned(sheet.image, 2), "jpeg", quality=40)], entries)


def _cards(author: Author) -> Iterator[Sample]:
    for name, title_first, dark in (
        ("time first", False, False),
        ("title first", True, False),
        ("dark", False, True),
    ):
        entries = author.day(4)
        sheet = Sheet.blank(640, 760, PLAIN, dark=dark)
        cards(sheet, entries, 26, words.plain, left=30, top=30, width=560, title_first=title_first)
        yield Sample(f"cards, {name}", [encoded(sheet.image)], entries)
    for face, write in ((SANS, words.plain), (PLAIN, words.twelve)):
        entries = author.day(8)
        sheet = Sheet.blank(1280, 800, face)
        for column, part in enumerate((entries[:4], entries[4:])):
            cards(sheet, part, 24, write, left=30 + 620 * column, top=30, width=580)
        yield Sample(f"cards, two columns, {write.__name__}", [encoded(sheet.image)], entries)
    entries = author.day(8)
    sheet = Sheet.blank(1500, 560, SERIF)
    for column, part in enumerate((entries[:4], entries[4:])):
        agenda(sheet, part, 26, words.plain, left=40 + 740 * column, top=40, indent=8.5)
    yield Sample("agenda, two columns", [encoded(sheet.image)], entries)


def _screens(author: Author) -> Iterator[Sample]:
    layouts: tuple[Callable[[Sheet, Sequence[Entry]], int], ...] = (
        lambda sheet, entries: agenda(sheet, entries, 44, words.tight, left=60, top=420, indent=7),
        lambda sheet, entries: cards(sheet, entries, 50, words.plain, left=60, top=400, width=1040),
        lambda sheet, entries: stacked(sheet, entries, 46, left=60, top=420),
        lambda sheet, entries: agenda(sheet, entries, 40, words.twelve, left=60, top=420, indent=12.5),
    )
    headings = ("Thu, Nov 19", "November 19, 2026", "19 November 2026", "2026-11-19")
    for number, (layout, heading) in enumerate(zip(layouts, headings, strict=True)):
        for dark in (False, True):
            entries = author.day(5)
            sheet = phone(SANS if dark else PLAIN, heading, dark=dark)
            layout(sheet, entries)
            form = {"form": "jpeg", "quality": 60} if number == 1 else {}
            name = f"telephone {number}{', dark' if dark else ''}"
            yield Sample(name, [encoded(sheet.image, **form)], entries, date=OTHER_DAY)  # type: ignore[arg-type]
    entries = author.day(5, german=True)
    sheet = phone(SANS, "Donnerstag, 19. November")
    agenda(sheet, entries, 42, words.plain, left=60, top=420, indent=8.5)
    yield Sample("telephone, German", [encoded(sheet.image)], entries, "deu", OTHER_DAY)


def some(version: int, count: int) -> list[Sample]:
    return list(islice(drawn(version), count))
