"""taskiq on a Redis stream, which acknowledges, as this project does; a receiver with many at a time."""
# mypy: ignore-errors
# (installed in the peers' environment only)

import asyncio
import time

from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamBroker

from tests.bench.stage import script


async def main() -> None:
    broker = RedisStreamBroker(script.arguments()["redis"], xread_count=500)
    done = script.Tally()

    @broker.task(task_name="nothing")
    async def nothing() -> None:
        done.add()

    await broker.startup()

    async def enqueue(jobs: int) -> None:
        for start in range(0, jobs, 100):
            count = min(100, jobs - start)
            await asyncio.gather(*(nothing.kiq() for _ in range(count)))

    async def work(jobs: int) -> script.Figures:
        receiver = Receiver(broker, max_async_tasks=500, max_prefetch=500, run_startup=False)
        done.expect(jobs)
        finish = asyncio.Event()
        began = time.monotonic()
        running = asyncio.create_task(receiver.listen(finish))
        await done.reached(1800)
        wall = time.monotonic() - began
        finish.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return {"wall": wall}

    await script.perform({"enqueue": enqueue, "work": work})


if __name__ == "__main__":
    asyncio.run(main())
