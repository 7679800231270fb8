"""absurd: tasks without steps, an asynchronous worker that claims many at a time."""
# mypy: ignore-errors
# (installed in the peers' environment only)

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from absurd_sdk import AsyncAbsurd

from tests.bench.stage import script


async def main() -> None:
    given = script.arguments()
    tool = Path(sys.executable).with_name("absurdctl")
    subprocess.run([sys.executable, str(tool), "init", "-d", given["url"]], check=True, stdout=sys.stderr)
    app = AsyncAbsurd(given["url"], queue_name="bench")
    await app.create_queue()
    done = script.Tally()

    @app.register_task(name="nothing")
    async def nothing(_params: object, _context: object) -> dict[str, str]:
        return {}

    async def enqueue(jobs: int) -> None:
        for _ in range(jobs):
            await app.spawn("nothing", {})

    async def work(jobs: int) -> script.Figures:
        complete = app._execute_task

        async def counted(*args: object) -> None:
            await complete(*args)
            done.add()

        app._execute_task = counted
        done.expect(jobs)
        began = time.monotonic()
        running = asyncio.create_task(app.start_worker(concurrency=50, batch_size=200, poll_interval=0.05))
        await done.reached(1800)
        wall = time.monotonic() - began
        app.stop_worker()
        await running
        return {"wall": wall}

    await script.perform({"enqueue": enqueue, "work": work})


if __name__ == "__main__":
    asyncio.run(main())
