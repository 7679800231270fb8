"""A hash job that changes hands."""

from collections.abc import Callable
from typing import Any, Final

import anyio
import pytest

from actors.dedup import hash_job
from actors.dedup.leases import FILES, HASH
from actors.dedup.waiting import until_none
from supervisor import Claim, Done
from supervisor.actor import Place
from supervisor.clock import boottime
from supervisor.config import Settings
from supervisor.store import Store
from tests.integration.dedup.sql_world import Claimed, DedupWorld
from tests.support.slowness import patient

COUNT: Final = 50
DIGEST: Final = bytes(32)


class Tools:
    """Those of a claim that is never lost."""

    kill_seconds = 2.0
    equipment = None

    def __init__(self, place: Place) -> None:
        self.place = place

    async def log(self, stream: str, data: bytes) -> None:
        pass

    def stop_deadline(self) -> float:
        return boottime() + 60

    def on_stop_deadline(self, callback: Callable[[float], None]) -> None:
        pass

    def progress(self, **columns: Any) -> None:
        pass


async def hash_some(world: DedupWorld, batch: Claimed, most: int = COUNT) -> None:
    files = await world.worker.sql("SELECT * FROM dedup.read_hash_batch($1, $2, 1000)", batch.id, batch.claim)
    files = files[:most]
    nothing = [None] * len(files)
    await world.worker.sql(
        "SELECT dedup.record_hashes($1, $2, 'blake3', $3, $4, $5, $6, $7, $8, $9)",
        batch.id, batch.claim, [file["id"] for file in files], [file["size_bytes"] for file in files],
        [file["mtime_ns"] for file in files], [file["inode"] for file in files],
        [DIGEST] * len(files), nothing, nothing,
    )  # fmt: skip


async def test_what_an_earlier_attempt_planned_is_not_planned_again(
    world: DedupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next owner of a hash job goes on where the last one was; no file is asked for twice."""
    waits = anyio.Event()

    async def told(*how: Any) -> None:
        waits.set()
        await until_none(*how)

    monkeypatch.setattr(hash_job, "until_none", told)
    for number in range(COUNT):
        await world.file(f"{number:03}", inode=number)
    job = await world.claimed(HASH, "hash")
    await world.worker.sql("SELECT FROM dedup.plan_hash($1, $2, 0, 1000, 20, 1000000)", job.id, job.claim)
    batches = await world.claim(FILES, rows=10)
    assert len(batches) == 3
    for batch in batches:
        await hash_some(world, batch, 5)

    store = Store(world.urls.worker)
    place = Place("w2", Settings(), store, store)
    claim = Claim(0, 0, 0, 0, job.claim, "dedup", None, {"processed_items": 15, "payload": {}}, None, job.id)
    with anyio.fail_after(patient(60)):
        async with anyio.create_task_group() as group:

            async def handle() -> None:
                assert await hash_job.handle(claim, Tools(place)) == Done({"progress": 1.0})

            group.start_soon(handle)
            await waits.wait()
            for batch in batches:
                await hash_some(world, batch)
                assert await world.finish(FILES, batch) == "RECORDED"
    await store.close()
    assert (await world.job_row(job.id))["total_items"] == COUNT
    assert all(not file["needs_hash"] for file in (await world.files()).values())
