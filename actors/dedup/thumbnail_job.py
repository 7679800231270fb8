"""Asks for the thumbnails of a whole library, as far as there is room, and waits until they are made."""

from typing import Final

import anyio

from actors.dedup.jobs_here import at_work
from actors.dedup.waiting import until_counted_out
from supervisor import Claim, Done, Outcome, Tools
from supervisor.asking import ask, ask_one
from supervisor.clock import jitter

WINDOW: Final = 2000
FULL_SECONDS: Final = 1.0


async def handle(claim: Claim, tools: Tools) -> Outcome:
    job = ThumbnailJob(claim, tools)
    with at_work(claim.key):
        await job.request()
        await until_counted_out(job.count_left)
    return Done({"progress": 1.0})


class ThumbnailJob:
    def __init__(self, claim: Claim, tools: Tools) -> None:
        self._id, self._library = claim.key, claim.payload["library_id"]
        self._token = (claim.key, claim.claim_id)
        self._store = tools.place.store
        self._progress = tools.progress
        self._total: int | None = None

    async def request(self) -> None:
        after = 0
        while after is not None:
            (part,) = await ask(self._store, "request_thumbnails", *self._token, after, WINDOW)
            after, self._total = part["last_id"], None
            if part["is_full"]:
                await self.count_left()
                await anyio.sleep(jitter(FULL_SECONDS))

    async def count_left(self) -> int:
        """And tell how far it is, with the next beat."""
        if self._total is None:
            self._total = await ask_one(self._store, "read_job_total", self._id) or 0
        left: int = await ask_one(self._store, "count_thumbnails_left", self._library) or 0
        done = max(0, self._total - left)
        share = min(0.99, done / self._total) if self._total else 0.0
        self._progress(processed_items=done, progress=share)
        return left
