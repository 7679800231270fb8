"""Outcomes on their way to the database: in batches, each repeated until it was answered."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

import anyio

from supervisor.clock import jitter
from supervisor.errors import TenureError
from supervisor.logs import logger
from supervisor.outbox import Outbox, until_answered
from supervisor.store import Store
from supervisor.verdict import Verdict

REFUSED_SECONDS: Final = 0.5

_log = logger("finisher")

T = TypeVar("T")


class Ending(NamedTuple):
    run_id: int
    claim_id: UUID
    epoch: int
    verdict: Verdict


class Finisher:
    """`answered` is told the endings of a batch and the answers by run: RECORDED, ALREADY or SUPERSEDED."""

    def __init__(
        self,
        store: Store,
        worker_id: str,
        answered: Callable[[Sequence[Ending], Mapping[int, str]], None],
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._answered = answered
        self._outbox = Outbox[Ending]()

    def add(self, ending: Ending) -> None:
        self._outbox.add(ending)

    async def run(self) -> None:
        while True:
            await self._deliver(await self._outbox.take())

    async def _deliver(self, batch: list[Ending]) -> None:
        answers: dict[int, str] | None = None
        while answers is None:
            try:
                answers = await until_answered(partial(self._send, batch), _log, runs=len(batch))
            except TenureError as error:
                if len(batch) > 1:
                    for one in batch:
                        await self._deliver([one])
                    return
                _log.error("outcome refused", run=batch[0].run_id, reason=str(error))
                await anyio.sleep(jitter(REFUSED_SECONDS))
                refused = Verdict("FAILED", None, "OUTCOME_REFUSED", str(error)[:500])
                batch = [Ending(batch[0].run_id, batch[0].claim_id, batch[0].epoch, refused)]
        self._answered(batch, answers)

    async def _send(self, batch: list[Ending]) -> dict[int, str]:
        verdicts = [ending.verdict for ending in batch]
        rows = await self._store.rows(
            "finish_runs",
            self._worker_id,
            [ending.run_id for ending in batch],
            [ending.claim_id for ending in batch],
            [ending.epoch for ending in batch],
            [verdict.state for verdict in verdicts],
            _if_any([verdict.result for verdict in verdicts]),
            _if_any([verdict.error_code for verdict in verdicts]),
            _if_any([verdict.error_message for verdict in verdicts]),
            _if_any([verdict.retry_after_seconds for verdict in verdicts]),
        )
        return {row["id"]: row["answer"] for row in rows}


def _if_any(column: list[T | None]) -> list[T | None] | None:
    """An array that is not there is as long as the others and empty: nothing is sent to say nothing."""
    return column if any(value is not None for value in column) else None
