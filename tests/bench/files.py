"""Files to find duplicates among: made once for all rounds, and the same each time.

media/large     all of one size; of six, three are equal and one differs from them at its end only
media/photos    each of its own size, and of every second one there is a copy
small           text of few sizes, a fifth of it copies
first           a few of these, for a replica to begin with
"""

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.arena import Arena
from tests.bench.scale import Scale
from tests.support.libraries import small_files

LARGE: Final = "media/large"
PHOTOS: Final = "media/photos"
MEDIA: Final = "media"
SMALL: Final = "small"
FIRST: Final = "first"
SETTLED_SECONDS: Final = 2.1
"""A file that was changed just now is waited for by tenure, and by nobody else."""


@contextmanager
def place_for(arena: Arena, size_bytes: int) -> Iterator[Path]:
    """A directory of this benchmark's own, where the servers' files lie if there is room for it."""
    beside = arena.data.parent
    where = beside if shutil.disk_usage(beside).free > 2 * size_bytes else Path(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix="tenure-files-", dir=where) as directory:
        yield Path(directory)


@contextmanager
def libraries(arena: Arena, scale: Scale) -> Iterator[Path]:
    size = scale.large_files * scale.large_bytes + 2 * scale.photos * scale.photo_bytes
    with place_for(arena, size + 4096 * scale.small_files) as root:
        _large(root / LARGE, scale.large_files, scale.large_bytes)
        _photos(root / PHOTOS, scale.photos, scale.photo_bytes)
        small_files(root / SMALL, scale.small_files, directories=max(1, scale.small_files // 100))
        _photos(root / FIRST / "photos", 10, 200_000)
        small_files(root / FIRST / "small", 100)
        yield root


def _large(folder: Path, count: int, size_bytes: int) -> None:
    folder.mkdir(parents=True)
    noise = memoryview(random.Random(1).randbytes(size_bytes + count))  # noqa: S311  the same each time
    for number in range(count):
        six, place = divmod(number, 6)
        begin = 6 * six if place < 4 else number
        content = noise[begin : begin + size_bytes]
        with (folder / f"recording {number:03}.mp4").open("wb") as file:
            file.write(content[:-1])
            file.write(bytes([content[-1] ^ (place == 3)]))


def _photos(folder: Path, count: int, size_bytes: int) -> None:
    chance = random.Random(2)  # noqa: S311  the same each time
    noise = memoryview(chance.randbytes(2 * size_bytes + count))
    copies = folder / "from the phone"
    copies.mkdir(parents=True)
    for number in range(count):
        content = noise[number : number + chance.randrange(size_bytes // 2, size_bytes * 3 // 2)]
        year = folder / f"{2015 + number % 10}"
        year.mkdir(exist_ok=True)
        (year / f"IMG_{number:05}.jpg").write_bytes(content)
        if number % 2:
            (copies / f"{number:05}.jpg").write_bytes(content)
