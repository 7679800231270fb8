"""This project: a real replica with the actors of the dedup domain, asked as an application asks."""

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import anyio

from actors.dedup.grouping import read_groups
from supervisor.client import Client
from supervisor.config import load_settings
from supervisor.replica import Replica
from supervisor.store import Store
from supervisor.wiring import run_replica
from tests.bench.stage import script

GIVEN: Final = script.arguments()
LOOK_SECONDS: Final = 0.1
PAGE: Final = 100
PATIENCE_SECONDS: Final = 60.0


class OnStage(Replica):
    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(super().run)
            while not (self.metrics.leader._value.get() and self._pulse.answered_at):
                await asyncio.sleep(0.02)
            self._client = Client(GIVEN["client"], size=1)
            self._reader = Store(GIVEN["control"], name="bench", size=1)
            await script.perform({"ask": self._ask})
            group.cancel_scope.cancel()

    async def _ask(self, action: str, payload: Mapping[str, Any]) -> script.Figures:
        """Until the run has ended and what came of it can be read.

        The run's own record says when it was asked for and when it ended: to look for that often would be
        more work for the replica's process and for the server than all the calls of the run itself.
        """
        run = await self._client.trigger(f"dedup/{action}", payload)
        while not (outcome := await self._client.outcome(run.id)).final:
            await asyncio.sleep(LOOK_SECONDS)
        if not outcome.succeeded:
            raise RuntimeError(f"{outcome.state}: {outcome.error_code} {outcome.error_message}")
        (record,) = await self._reader.rows("list_runs", None, None, outcome.id + 1, 1)
        library = await self._reader.row("read_library_root", payload["library"])
        assert library is not None
        began = time.monotonic()
        await read_groups(self._reader, library["id"], None, PAGE, PATIENCE_SECONDS)
        took: float = (record["finished_at"] - record["created_at"]).total_seconds()
        return {"wall": took + time.monotonic() - began}


if __name__ == "__main__":
    sys.exit(run_replica(load_settings(), OnStage))
