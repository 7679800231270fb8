"""Something to look at: one drawn screenshot of a day, submitted once."""

from io import BytesIO
from typing import IO, Final
from uuid import UUID

from anyio.to_thread import run_sync
from PIL import Image, ImageDraw, ImageFont

from actors.capture.submit import Picture, submit
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.config import Settings
from supervisor.store import Store

SESSION: Final = UUID("7e00bea7-0000-4000-8000-000000000004")
ACTOR: Final = "sample"
USER: Final = 7
LINES: Final = (
    ("08:30 - 09:00", "Stand-up"),
    ("09:15 - 11:00", "Budget review"),
    ("12:00 - 13:00", "Lunch with Ines"),
    ("14:30 - 16:00", "Dentist"),
    ("18:00 - 19:30", "Pottery class"),
)


async def sample(store: Store, settings: Settings) -> None:
    if await store.row("show_capture", SESSION) is not None:
        return
    artifacts = open_artifacts(load_artifact_settings(), settings.state_dir)
    try:
        await submit(store, artifacts, ACTOR, USER, [Picture("the sample", await run_sync(_draw))], SESSION)
    finally:
        await artifacts.aclose()


def _draw() -> IO[bytes]:
    picture = Image.new("RGB", (900, 760), "white")
    draw = ImageDraw.Draw(picture)
    draw.text((60, 50), "Monday, 16 November 2026", fill="black", font=ImageFont.load_default(44))
    font = ImageFont.load_default(36)
    for number, (time, title) in enumerate(LINES):
        top = 160 + number * 110
        draw.text((60, top), time, fill="black", font=font)
        draw.text((400, top), title, fill="black", font=font)
        draw.line([(60, top + 75), (840, top + 75)], fill="lightgray", width=2)
    file = BytesIO()
    picture.save(file, "PNG")
    file.seek(0)
    return file
