"""arq on Redis: a burst worker with many jobs at a time, no results kept."""
# mypy: ignore-errors
# (installed in the peers' environment only)

import asyncio
import time

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func

from tests.bench.stage import script


async def nothing(_context: object) -> None:
    """What is measured is all around it."""


async def main() -> None:
    settings = RedisSettings.from_dsn(script.arguments()["redis"])
    pool = await create_pool(settings)
    await pool.flushdb()

    async def enqueue(jobs: int) -> None:
        for start in range(0, jobs, 100):
            count = min(100, jobs - start)
            await asyncio.gather(*(pool.enqueue_job("nothing") for _ in range(count)))

    async def work(jobs: int) -> script.Figures:
        worker = Worker(
            [func(nothing, name="nothing", keep_result=0)],
            redis_settings=settings,
            burst=True,
            max_jobs=500,
            poll_delay=0.01,
            handle_signals=False,
            log_results=False,
        )
        began = time.monotonic()
        await worker.main()
        wall = time.monotonic() - began
        await worker.close()
        return {"wall": wall}

    await script.perform({"enqueue": enqueue, "work": work})


if __name__ == "__main__":
    asyncio.run(main())
