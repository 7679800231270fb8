"""procrastinate: deferred in batches, a worker with many at a time that ends when it has caught up."""
# mypy: ignore-errors
# (installed in the peers' environment only)

import asyncio
import time

from procrastinate import App, PsycopgConnector

from tests.bench.stage import script


async def main() -> None:
    given = script.arguments()
    app = App(connector=PsycopgConnector(conninfo=given["url"], max_size=20))
    latency = script.Latency()

    @app.task(name="nothing")
    async def nothing(asked_at: float = 0.0) -> None:
        if asked_at:
            latency.picked_up(asked_at)

    async def enqueue(jobs: int) -> None:
        for start in range(0, jobs, 1000):
            await nothing.batch_defer_async(*[{} for _ in range(min(1000, jobs - start))])

    async def work(jobs: int) -> script.Figures:
        began = time.monotonic()
        await app.run_worker_async(wait=False, concurrency=20, install_signal_handlers=False)
        return {"wall": time.monotonic() - began}

    async def pace(rate: float, seconds: float) -> script.Figures:
        running = asyncio.create_task(app.run_worker_async(concurrency=20, install_signal_handlers=False))
        await asyncio.sleep(1)
        figures = await latency.pace(lambda at: nothing.defer_async(asked_at=at), rate=rate, seconds=seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return figures

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await script.perform({"enqueue": enqueue, "work": work, "latency": pace})


if __name__ == "__main__":
    asyncio.run(main())
