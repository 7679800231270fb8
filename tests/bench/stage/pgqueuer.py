"""pgqueuer with asyncpg: many jobs a call to enqueue, drain mode, the batch as asked for."""
# mypy: ignore-errors
# (installed in the peers' environment only)

import asyncio
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

from tests.bench.stage import script


async def main() -> None:
    given = script.arguments()
    queries = Queries(AsyncpgDriver(await asyncpg.connect(given["url"])))
    await queries.install()
    latency = script.Latency()

    async def enqueue(jobs: int) -> None:
        for start in range(0, jobs, 1000):
            count = min(1000, jobs - start)
            await queries.enqueue(["nothing"] * count, [b"{}"] * count, [0] * count)

    async def manager() -> QueueManager:
        made = QueueManager(Queries(AsyncpgDriver(await asyncpg.connect(given["url"]))))

        @made.entrypoint("nothing")
        async def nothing(job: Job) -> None:
            if job.payload != b"{}":
                latency.picked_up(float(job.payload))

        return made

    async def work(jobs: int) -> script.Figures:
        one = await manager()
        began = time.monotonic()
        await one.run(
            mode=QueueExecutionMode.drain, batch_size=given["batch"], dequeue_timeout=timedelta(seconds=1)
        )
        return {"wall": time.monotonic() - began}

    async def pace(rate: float, seconds: float) -> script.Figures:
        one = await manager()
        running = asyncio.create_task(one.run(batch_size=given["batch"]))
        await asyncio.sleep(1)
        figures = await latency.pace(
            lambda at: queries.enqueue("nothing", repr(at).encode()), rate=rate, seconds=seconds
        )
        one.shutdown.set()
        await running
        return figures

    await script.perform({"enqueue": enqueue, "work": work, "latency": pace})


if __name__ == "__main__":
    uvloop.run(main())
