"""Asks for the thumbnails of a whole library, as far as there is room, and waits until they are made."""

from typing import Final

import anyio

from actors.dedup.waiting import until_none
from supervisor import Claim, Done, Outcome, Tools
from supervisor.asking import ask, ask_one
from supervisor.clock import jitter

WINDOW: Final = 2000
FULL_SECONDS: Final = 1.0


async def handle(claim: Claim, tools: Tools) -> Outcome:
    job = ThumbnailJob(claim, tools)
    await job.request()
    await until_none(job.some_left, job.report)
    return Done({"progress": 1.0})


class ThumbnailJob:
    def __init__(self, claim: Claim, tools: Tools) -> None:
        self._id, self._library = claim.key, claim.payload["library_id"]
        self._token = (claim.key, claim.claim_id)
        self._store = tools.place.store
        self._progress = tools.progress

    async def request(self) -> None:
        after = 0
        while after is not None:
            (part,) = await ask(self._store, "request_thumbnails", *self._token, after, WINDOW)
            after = part["last_id"]
            if part["is_full"]:
                await self.report()
                await anyio.sleep(jitter(FULL_SECONDS))

    async def some_left(self) -> bool:
        return bool(await ask_one(self._store, "find_thumbnails_left", self._library))

    async def report(self) -> None:
        total: int = await ask_one(self._store, "read_job_total", self._id) or 0
        left: int = await ask_one(self._store, "count_thumbnails_left", self._library) or 0
        done = max(0, total - left)
        self._progress(processed_items=done, progress=min(0.99, done / total) if total else 0.0)
