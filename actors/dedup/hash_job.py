"""Plans the hashing of a library and waits until it is done.

The files themselves are leased batch by batch by every replica (hash_files.py); this job only makes the
batches, and is the one scan or hash that is active. Where only duplicates are wanted, files without a partner
of the same size are left alone, and large files are told apart by their beginnings before any is read whole:
hence a second pass. Done again, after a kill or on another replica, it first waits for what is planned: with
other borders it would be planned, and read, twice.
"""

from typing import Final

from actors.dedup.waiting import until_none
from supervisor import Claim, Done, Outcome, Retry, Tools
from supervisor.asking import ask

WINDOW: Final = 50_000
BATCH_FILES: Final = 1000
BATCH_BYTES: Final = 256 << 20
PASSES: Final = 3
"""As often a file is tried whose batch came to nothing, before it is left to the next job."""


async def handle(claim: Claim, tools: Tools) -> Outcome:
    job = HashJob(claim, tools)
    await job.wait_for_earlier()
    only_duplicates = claim.payload["payload"].get("mode") == "duplicates"
    for _ in range(2 if only_duplicates else PASSES):
        if not await job.plan():
            return Done({"progress": 1.0})
        await job.wait()
    # files without a partner still have no hash, and need none; of all files, each has one or a reason
    if not only_duplicates and await job.plan():
        return Retry("HASH_INCOMPLETE", "some batches came to nothing: see the errors of their first files")
    return Done({"progress": 1.0})


class HashJob:
    def __init__(self, claim: Claim, tools: Tools) -> None:
        self._id = claim.key
        self._token = (claim.key, claim.claim_id)
        self._store = tools.place.store
        self._progress = tools.progress
        self._planned = 0
        self._before = claim.payload["processed_items"]

    async def wait_for_earlier(self) -> None:
        """For the batches that an earlier attempt at this job made."""
        self._planned, _ = await self._left()
        await self.wait()

    async def plan(self) -> int:
        """How many batches there are to wait for."""
        after: int | None = 0
        while after is not None:
            (part,) = await ask(
                self._store, "plan_hash", *self._token, after, WINDOW, BATCH_FILES, BATCH_BYTES
            )
            after = part["last_id"]
        left, batches = await self._left()
        self._planned = left
        return batches

    async def wait(self) -> None:
        await until_none(self._some_left, self._report)
        await self._report()
        self._before += self._planned

    async def _some_left(self) -> bool:
        return (await self._left())[1] > 0

    async def _left(self) -> tuple[int, int]:
        (row,) = await ask(self._store, "read_hash_left", self._id)
        return row["remaining"], row["batches"]

    async def _report(self) -> None:
        left, _ = await self._left()
        done = max(0, self._planned - left)
        share = min(0.99, done / self._planned) if self._planned else 0.0
        self._progress(processed_items=self._before + done, progress=share)
