"""Outcomes on their way to the database: in batches, each repeated until it was answered."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import anyio

from supervisor.clock import jitter
from supervisor.errors import DatabaseUnreachable, OutcomeUnknown, TenureError
from supervisor.logs import logger
from supervisor.store import Store
from supervisor.verdict import Verdict

BATCH: Final = 500

_log = logger("finisher")


@dataclass(frozen=True, slots=True)
class Ending:
    run_id: int
    claim_id: UUID
    epoch: int
    verdict: Verdict


class Finisher:
    """`answered` is told (ending, answer): RECORDED, ALREADY or SUPERSEDED."""

    def __init__(self, store: Store, worker_id: str, answered: Callable[[Ending, str], None]) -> None:
        self._store = store
        self._worker_id = worker_id
        self._answered = answered
        self._waiting: list[Ending] = []
        self._some = anyio.Event()

    def add(self, ending: Ending) -> None:
        self._waiting.append(ending)
        self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            self._some = anyio.Event()
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
                await self._deliver(batch)

    async def _deliver(self, batch: list[Ending]) -> None:
        pause = 0.05
        answers: dict[int, str] | None = None
        while answers is None:
            try:
                answers = await self._send(batch)
            except (OutcomeUnknown, DatabaseUnreachable) as error:
                _log.warning("outcome not recorded yet", runs=len(batch), reason=str(error))
                await anyio.sleep(jitter(pause))
                pause = min(pause * 2, 1.0)
            except TenureError as error:
                if len(batch) > 1:
                    for one in batch:
                        await self._deliver([one])
                    return
                _log.error("outcome refused", run=batch[0].run_id, reason=str(error))
                refused = Verdict("FAILED", None, "OUTCOME_REFUSED", str(error)[:500])
                batch = [Ending(batch[0].run_id, batch[0].claim_id, batch[0].epoch, refused)]
        for ending in batch:
            self._answered(ending, answers[ending.run_id])

    async def _send(self, batch: list[Ending]) -> dict[int, str]:
        verdicts = [ending.verdict for ending in batch]
        rows = await self._store.rows(
            "finish_runs",
            self._worker_id,
            [ending.run_id for ending in batch],
            [ending.claim_id for ending in batch],
            [ending.epoch for ending in batch],
            [verdict.state for verdict in verdicts],
            [verdict.result for verdict in verdicts],
            [verdict.error_code for verdict in verdicts],
            [verdict.error_message for verdict in verdicts],
            [verdict.retry_after_seconds for verdict in verdicts],
        )
        return {row["id"]: row["answer"] for row in rows}
