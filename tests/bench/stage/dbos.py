"""DBOS: workflows without steps on a queue, polled often, with as many at a time as its pool allows."""
# mypy: ignore-errors
# (installed in the peers' environment only)

import asyncio
import time

from dbos import DBOS, DBOSConfig

from tests.bench.stage import script

QUEUE = "bench"


@DBOS.workflow()
async def nothing() -> None:
    """What is measured is all around it."""


async def main() -> None:
    given = script.arguments()
    config = DBOSConfig(
        name="bench",
        system_database_url=given["url"].replace("postgresql://", "postgresql+psycopg://"),
        sys_db_pool_size=20,
        log_level="ERROR",
    )
    DBOS(config=config)
    DBOS.launch()
    handles = []

    async def enqueue(jobs: int) -> None:
        for start in range(0, jobs, 20):
            count = min(20, jobs - start)
            handles.extend(
                await asyncio.gather(*(DBOS.enqueue_workflow_async(QUEUE, nothing) for _ in range(count)))
            )

    async def work(jobs: int) -> script.Figures:
        began = time.monotonic()
        await DBOS.register_queue_async(QUEUE, polling_interval_sec=0.05, worker_concurrency=100)
        # the last to be enqueued are the last to be taken
        for handle in reversed(handles):
            await handle.get_result()
        return {"wall": time.monotonic() - began}

    await script.perform({"enqueue": enqueue, "work": work})


if __name__ == "__main__":
    asyncio.run(main())
