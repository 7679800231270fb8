"""Something to look at: an article with a cover and two pictures. Done again, it adds nothing."""

from collections.abc import Sequence
from tempfile import TemporaryFile
from typing import IO, Final
from uuid import NAMESPACE_URL, uuid5

from anyio.to_thread import run_sync
from PIL import Image, ImageDraw

from actors.media.content import Content, examine
from actors.media.shelf import open_shelf
from actors.media.upload import upload
from actors.media.write import Request, Slot, Writer, write
from supervisor.artifacts import Artifacts
from supervisor.config import Settings
from supervisor.store import Store

PICTURES: Final[Sequence[tuple[str, int, str]]] = (
    ("cover", 0, "#2b6cb0"),
    ("gallery", 0, "#2f855a"),
    ("gallery", 1, "#b7791f"),
)
BYTES_MOST: Final = 1 << 20


async def sample(store: Store, settings: Settings) -> None:
    artifacts = open_shelf(settings)
    try:
        for role, position, colour in PICTURES:
            await _attach(store, artifacts, Slot("sample", "article", "1", role, position), colour)
    finally:
        await artifacts.aclose()


async def _attach(store: Store, artifacts: Artifacts, slot: Slot, colour: str) -> None:
    request = uuid5(NAMESPACE_URL, f"tenure:sample:media:{slot.role}:{slot.position}")
    wish = Request(request, "attach", Writer.of("sample", is_admin=True), slot)
    with TemporaryFile() as file:
        content = await run_sync(_drawn, file, colour)
        await upload(artifacts, content, lambda facts: write(store, wish, facts))


def _drawn(file: IO[bytes], colour: str) -> Content:
    picture = Image.new("RGB", (960, 540), colour)
    draw = ImageDraw.Draw(picture)
    for step in range(0, 540, 60):
        draw.line([(0, step), (960, 540 - step)], fill="white", width=3)
    picture.save(file, "PNG")
    return examine(file, BYTES_MOST)
