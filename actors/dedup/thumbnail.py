"""Makes thumbnails: each original is opened confined, decoded in a chamber, and published by a rename.

There are more handlers than chambers, so that a chamber finds the next picture opened when it has made one.
What is small work for each of them - to ask where the original is, to open, to sync and publish - is done
for several at once (together.py): a picture costs the replica less than its own call, thread and commit.
"""

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio

from actors.dedup.canvas import Canvas, open_all, publish
from actors.dedup.confine import FileTrouble
from actors.dedup.io_budget import IoBudget
from actors.dedup.render import Rendered, ThumbnailFailed, render, renderers
from actors.dedup.together import Together
from supervisor import Claim, Done, Outcome, Retry, Tools
from supervisor.actor import Place
from supervisor.asking import ask
from supervisor.chamber import Chambers
from supervisor.store import Record
from supervisor.threads import in_thread

CHAMBERS: Final = os.cpu_count() or 2
GROUP: Final = min(2 * CHAMBERS, 8)
"""So many are published together, while others are being made."""
SLOTS: Final = 2 * CHAMBERS + 2 * GROUP
"""One in each chamber and one before it; a group that is being published, and one that gathers."""
GATHER_SECONDS: Final = 0.1
PATH_REFUSED: Final = "THUMB_PATH_POLICY_REJECTED"


class Studio:
    """What the thumbnails of a replica share."""

    def __init__(self, place: Place, chambers: Chambers) -> None:
        self._place = place
        self._making = 0
        self.chambers = chambers
        self.turns = anyio.Semaphore(chambers.size)
        self.budget = IoBudget(place.store)
        # a question to the database has no end while it does not answer: nobody who must stop waits for it
        self.sources = Together(self._read, must_end=False)
        self.easels = Together(self._open, drop=Canvas.discard)
        self.gallery = Together(self._publish, gather=self._others_come, gather_seconds=GATHER_SECONDS)

    @contextmanager
    def making(self) -> Iterator[None]:
        """One more that will be published soon, unless it fails."""
        self._making += 1
        try:
            yield
        finally:
            self._making -= 1
            self.gallery.look_again()

    def _others_come(self, waiting: int) -> bool:
        return waiting < GROUP and self._making > 0

    async def _read(self, files: Sequence[int]) -> list[Record | None]:
        rows = await ask(self._place.store, "read_thumbnail_sources", list(files))
        found = {row["id"]: row for row in rows}
        return [found.get(file) for file in files]

    async def _open(self, wanted: Sequence[tuple[Claim, Record]]) -> list[Canvas | Exception]:
        return await in_thread(lambda _stop: open_all(self._place.settings, wanted))

    async def _publish(self, canvases: Sequence[Canvas]) -> list[Canvas | Exception]:
        return await in_thread(lambda _stop: publish(canvases))


@asynccontextmanager
async def equip(place: Place) -> AsyncIterator[Studio]:
    async with renderers(CHAMBERS) as chambers, anyio.create_task_group() as group:
        studio = Studio(place, chambers)
        for shared in (studio.sources, studio.easels, studio.gallery):
            group.start_soon(shared.run)
        yield studio
        group.cancel_scope.cancel()


async def handle(claim: Claim, tools: Tools) -> Outcome:
    studio: Studio = tools.equipment
    wanted = claim.payload
    source = await studio.sources.ask(wanted["file_id"])
    if source is None or source["is_missing"]:
        return Retry("THUMB_SOURCE_MISSING", "the original is no longer there")
    await studio.budget.spend(wanted["source_size"])
    try:
        made = await _made(studio, claim, source, tools)
    except FileTrouble as error:
        code = PATH_REFUSED if error.code in {"ESCAPES_LIBRARY", "SPECIAL_FILE"} else f"THUMB_{error.code}"
        return Retry(code, "the original cannot be opened, or the output written")
    except ThumbnailFailed as error:
        return Retry(error.code, str(error))
    return Done({"width": made.width, "height": made.height, "bytes_size": made.bytes_size})


async def _made(studio: Studio, claim: Claim, source: Record, tools: Tools) -> Rendered:
    wanted = claim.payload
    canvas = await studio.easels.ask((claim, source))
    try:
        # the deadline bounds the making: it is asked for when the waiting is over
        with studio.making():
            async with studio.turns:
                made = await render(
                    studio.chambers,
                    canvas.source,
                    canvas.output,
                    wanted["format"],
                    wanted["max_dimension"],
                    tools.stop_deadline(),
                )
        await studio.gallery.ask(canvas)
        return made
    finally:
        canvas.discard()
