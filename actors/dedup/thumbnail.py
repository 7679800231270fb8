"""Makes one thumbnail: the original is opened confined, decoded in a chamber, and published by a rename.

The original is only read. The output stands under the state's directory, at a place its key decides, and is
whole or not there. A file that is not what it was when the thumbnail was asked for is refused: its new state
has another key.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from actors.dedup.confine import Beneath, FileTrouble, library_root, split
from actors.dedup.io_budget import IoBudget
from actors.dedup.render import Rendered, ThumbnailFailed, render, renderers
from supervisor import Claim, Done, Outcome, Retry, Tools
from supervisor.actor import Place
from supervisor.asking import ask
from supervisor.chamber import Chambers
from supervisor.config import Settings
from supervisor.store import Record
from supervisor.threads import in_thread

SLOTS: Final = os.cpu_count() or 2
PATH_REFUSED: Final = "THUMB_PATH_POLICY_REJECTED"


@dataclass(frozen=True, slots=True)
class Studio:
    """What the thumbnails of a replica share."""

    chambers: Chambers
    budget: IoBudget


@asynccontextmanager
async def equip(place: Place) -> AsyncIterator[Studio]:
    async with renderers(SLOTS) as chambers:
        yield Studio(chambers, IoBudget(place.store))


@dataclass(frozen=True, slots=True)
class Canvas:
    """The files of one thumbnail: the original, and the output under another name until it is published."""

    source: int
    output: int
    directory: Beneath
    draft: bytes
    name: bytes

    def publish(self) -> None:
        os.fsync(self.output)
        os.rename(self.draft, self.name, src_dir_fd=self.directory.fd, dst_dir_fd=self.directory.fd)
        os.fsync(self.directory.fd)

    def discard(self) -> None:
        os.close(self.source)
        os.close(self.output)
        with suppress(FileNotFoundError):
            os.unlink(self.draft, dir_fd=self.directory.fd)
        self.directory.close()


async def handle(claim: Claim, tools: Tools) -> Outcome:
    wanted = claim.payload
    rows = await ask(tools.place.store, "read_thumbnail_sources", [wanted["file_id"]])
    if not rows or rows[0]["is_missing"]:
        return Retry("THUMB_SOURCE_MISSING", "the original is no longer there")
    studio: Studio = tools.equipment
    await studio.budget.spend(wanted["source_size"])
    opened: list[Canvas] = []  # also what a thread opened whose caller was cancelled
    try:
        await in_thread(lambda _stop: opened.append(open_canvas(tools.place.settings, rows[0], claim)))
        made = await _made(studio, opened[0], claim, tools)
        await in_thread(lambda _stop: opened[0].publish())
    except FileTrouble as error:
        code = PATH_REFUSED if error.code in {"ESCAPES_LIBRARY", "SPECIAL_FILE"} else f"THUMB_{error.code}"
        return Retry(code, "the original cannot be opened, or the output written")
    except ThumbnailFailed as error:
        return Retry(error.code, str(error))
    finally:
        for canvas in opened:
            canvas.discard()
    return Done({"width": made.width, "height": made.height, "bytes_size": made.bytes_size})


async def _made(studio: Studio, canvas: Canvas, claim: Claim, tools: Tools) -> Rendered:
    wanted = claim.payload
    return await render(
        studio.chambers,
        canvas.source,
        canvas.output,
        wanted["format"],
        wanted["max_dimension"],
        tools.stop_deadline(),
    )


def open_canvas(settings: Settings, source: Record, claim: Claim) -> Canvas:
    """Blocking. Everything is opened beneath its root, the original's and the thumbnails'."""
    wanted = claim.payload
    if settings.libraries_dir is None:
        raise FileTrouble(path="TENURE_LIBRARIES_DIR", code="LIBRARIES_DIR_UNSET")
    with library_root(settings.libraries_dir, source["root_path"]) as root:
        handle, facts = root.open_regular(source["relative_path"])
    try:
        _require_unchanged(facts, wanted["source_size"], wanted["source_mtime_ns"])
        return _with_output(thumbs_dir(settings), handle, wanted["output_relpath"], claim.claim_id)
    except BaseException:
        os.close(handle)
        raise


def _require_unchanged(facts: os.stat_result, size: int, mtime_ns: int) -> None:
    if (facts.st_size, facts.st_mtime_ns) != (size, mtime_ns):
        raise FileTrouble(path="original", code="SOURCE_CHANGED")


def _with_output(thumbs: Path, source: int, relpath: str, token: UUID) -> Canvas:
    thumbs.mkdir(mode=0o700, parents=True, exist_ok=True)
    parent, name = split(relpath)
    with Beneath(os.open(thumbs, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as root:
        directory = root.make_directories(parent)
    draft = b".%s-%s" % (name, str(token).encode())
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        output = os.open(draft, flags, 0o644, dir_fd=directory.fd)
    except BaseException:
        directory.close()
        raise
    return Canvas(source, output, directory, draft, name)


def thumbs_dir(settings: Settings) -> Path:
    return settings.thumbs_dir or settings.state_dir / "thumbs"
