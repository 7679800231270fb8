"""This project: a real replica, leader and worker in one process, with actors that do nothing.

Their work is held back by pausing the domain until a phase says go. Ended is what the database has answered:
the count is taken where the replica hears that its outcomes are recorded.
"""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio
import asyncpg
import httpx

from supervisor import Actor, Claim, Done, Outcome, Tools
from supervisor.client import Client
from supervisor.config import Settings, load_settings
from supervisor.domain import Domain
from supervisor.replica import Replica
from supervisor.urls import RuntimeUrls
from supervisor.wiring import run_replica
from tests.bench.stage import script
from tests.bench.tables import DOMAIN, JOB, LATER, ROWS
from tests.support.door import BEARER

GIVEN: Final = script.arguments()
LATENCY: Final = script.Latency()
PATIENCE_SECONDS: Final = 900
CONNECTIONS: Final = 4
BY_CALL: Final = 2000


async def handle(claim: Claim, _tools: Tools) -> Outcome:
    if asked_at := claim.payload.get("asked_at"):
        LATENCY.picked_up(asked_at)
    return Done()


class OnStage(Replica):
    def __init__(
        self,
        settings: Settings,
        urls: RuntimeUrls,
        actors: Mapping[str, Actor],
        domains: Sequence[Domain] = (),
    ) -> None:
        ours = [
            Actor(domain=DOMAIN, handle=handle),
            Actor(domain=DOMAIN, handle=handle, lease=ROWS, slots=64, ahead=1000),
        ]
        super().__init__(settings, urls, {**actors, **{actor.name: actor for actor in ours}}, domains)
        self._runs, self._rows = script.Tally(), script.Tally()
        finisher, loop = self._runner._finisher, self._loops[-1]._finisher
        runs_answered, rows_answered = finisher._answered, loop._answered

        def of_run(ending: Any, answer: Any) -> None:
            runs_answered(ending, answer)
            self._runs.add(len(ending) if isinstance(ending, list) else 1)

        def of_rows(endings: Any, answers: Any) -> None:
            rows_answered(endings, answers)
            self._rows.add(len(endings))

        finisher._answered, loop._answered = of_run, of_rows

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(super().run)
            await self._leading()
            self._admin = await asyncpg.connect(GIVEN["admin"])
            self._client = Client(GIVEN["client"], size=CONNECTIONS)
            await script.perform(
                {
                    "enqueue": self._enqueue,
                    "open_api": self._open_api,
                    "enqueue_by_api": self._enqueue_by_api,
                    "work": self._work,
                    "rows": self._work_rows,
                    "latency": self._latency,
                    "lateness": self._lateness,
                }
            )
            group.cancel_scope.cancel()

    async def _leading(self) -> None:
        while not (self.metrics.leader._value.get() and self._pulse.answered_at):
            await asyncio.sleep(0.02)

    async def _enqueue(self, jobs: int) -> None:
        await self._client.trigger_many(JOB, [{}] * jobs)

    async def _open_api(self) -> None:
        """It is made when it is first wanted."""
        await self._ask_api(1, 1)

    async def _enqueue_by_api(self, jobs: int) -> script.Figures:
        calls = -(-jobs // BY_CALL)
        began = time.monotonic()
        await self._ask_api(calls, BY_CALL)
        return {"wall": time.monotonic() - began, "jobs": calls * BY_CALL}

    async def _ask_api(self, calls: int, runs: int) -> None:
        address = f"http://127.0.0.1:{self.settings.http_port}"
        path = f"/api/v1/job-definitions/{LATER}/trigger-many"
        asked = {"runs": [{"payload": {}}] * runs, "not_before": "2999-01-01T00:00:00Z"}
        async with httpx.AsyncClient(base_url=address, timeout=60, headers=BEARER) as client:
            for _ in range(calls):
                (await client.post(path, json=asked)).raise_for_status()

    async def _work(self, jobs: int) -> script.Figures:
        return await self._let_go(self._runs, jobs, "run")

    async def _work_rows(self, jobs: int) -> script.Figures:
        return await self._let_go(self._rows, jobs, f"lease:{ROWS.table}")

    async def _let_go(self, tally: script.Tally, jobs: int, hint: str) -> script.Figures:
        tally.expect(jobs)
        await self._admin.execute("DELETE FROM supervisor.domain_pause")
        began = time.monotonic()
        await self._admin.execute("SELECT pg_notify('tenure', $1)", hint)
        await tally.reached(PATIENCE_SECONDS)
        return {"wall": time.monotonic() - began}

    async def _latency(self, rate: float, seconds: float) -> script.Figures:
        await self._admin.execute("DELETE FROM supervisor.domain_pause")
        return await LATENCY.pace(
            lambda at: self._client.trigger(JOB, {"asked_at": at}), rate=rate, seconds=seconds
        )

    async def _lateness(self, jobs: int, due: float) -> script.Figures:
        """Definitions that all become due at one instant: how long after it each of their runs began."""
        self._runs.expect(jobs - self._runs.count)
        await self._runs.reached(PATIENCE_SECONDS)
        rows = await self._admin.fetch(
            "SELECT extract(epoch FROM started_at)::float8 - $1 FROM supervisor.job_run", due
        )
        return {"waits": [row[0] for row in rows]}


if __name__ == "__main__":
    sys.exit(run_replica(load_settings(), OnStage))
