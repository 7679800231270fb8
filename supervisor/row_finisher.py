"""Outcomes of leased rows on their way to the database: in batches by path, each repeated until answered."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from supervisor.holdings import HeldRow
from supervisor.keeper import arrays_of
from supervisor.lease_sql import AFTER, CODE, MESSAGE, Statement
from supervisor.logs import logger
from supervisor.outbox import Outbox, until_answered
from supervisor.row_outcome import RowVerdict, refused
from supervisor.store import Store

_log = logger("row_finisher")


class RowEnding(NamedTuple):
    row: HeldRow
    verdict: RowVerdict


class RowFinisher:
    """`answered` is told the endings of a batch and the answers by token; None = given up."""

    def __init__(
        self,
        store: Store,
        owner: str,
        statements: Mapping[str, Statement],
        answered: Callable[[Sequence[RowEnding], Mapping[UUID, str] | None], None],
    ) -> None:
        self._store = store
        self._owner = owner
        self._statements = statements
        self._answered = answered
        self._outbox = Outbox[RowEnding]()

    def add(self, ending: RowEnding) -> None:
        self._outbox.add(ending)

    async def run(self) -> None:
        while True:
            by_path: dict[str, list[RowEnding]] = defaultdict(list)
            for ending in await self._outbox.take():
                by_path[ending.verdict.path].append(ending)
            for path, endings in by_path.items():
                await self._deliver(path, endings)

    async def _deliver(self, path: str, endings: Sequence[RowEnding]) -> None:
        try:
            send = partial(self._send, self._statements[path], endings)
            answers = await until_answered(send, _log, rows=len(endings))
        except Exception as error:  # noqa: BLE001  a table's own guards may raise anything
            await self._refuse(endings, error)
        else:
            self._answered(endings, answers)

    async def _refuse(self, endings: Sequence[RowEnding], error: Exception) -> None:
        """One of them is at fault: alone it is recorded as a failure, else given up."""
        if len(endings) > 1:
            for one in endings:
                await self._deliver(one.verdict.path, [one])
            return
        (one,) = endings
        _log.error("outcome refused", key=one.row.key, path=one.verdict.path, reason=str(error))
        if one.verdict.code == "OUTCOME_REFUSED":
            self._answered(endings, None)
        else:
            await self._deliver("retry", [RowEnding(one.row, refused(str(error)))])

    async def _send(self, statement: Statement, endings: Sequence[RowEnding]) -> dict[UUID, str]:
        verdicts = [ending.verdict for ending in endings]
        extras = [_column(verdicts, name) for name in statement.extras]
        arrays = arrays_of(statement, [ending.row for ending in endings], extras)
        rows = await self._store.rows(statement, self._owner, *arrays)
        return {row["token"]: row["answer"] for row in rows}


def _column(verdicts: Sequence[RowVerdict], name: str) -> list[Any]:
    match name:
        case _ if name == CODE:
            return [verdict.code for verdict in verdicts]
        case _ if name == MESSAGE:
            return [verdict.message for verdict in verdicts]
        case _ if name == AFTER:
            return [verdict.after_seconds for verdict in verdicts]
        case _:
            return [None if verdict.values is None else verdict.values.get(name) for verdict in verdicts]
