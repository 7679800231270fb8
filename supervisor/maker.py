"""The leader's makers of runs: schedules and events, each a fenced call for all that are due."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from supervisor.logs import logger
from supervisor.schedule import COUNT_LIMIT, Firing, decide
from supervisor.store import Record, Store

SCHEDULES: Final = 2000
EVENTS: Final = 500
LOOK_AGAIN: Final = timedelta(minutes=1)

_log = logger("maker")

Call = Callable[..., Awaitable[Sequence[Record]]]


class Maker:
    """`call` sends a fenced statement under the leader's epoch."""

    def __init__(self, store: Store, call: Call) -> None:
        self._store = store
        self._call = call

    async def schedules(self) -> int:
        """Fire what is due; how many runs were made."""
        due = await self._store.rows("read_schedules", SCHEDULES)
        if not due:
            return 0
        # a thousand schedules are some tens of milliseconds of arithmetic
        decided = await asyncio.to_thread(lambda: [(row, *_decide(row)) for row in due])
        made = await self._call("fire_schedules", *_columns(decided))
        return len(made)

    async def events(self) -> int:
        return sum(row["runs"] for row in await self._call("process_events", EVENTS))


def _decide(row: Record) -> tuple[Firing, str | None]:
    """A schedule that cannot be computed is marked and looked at again later; the others go on."""
    try:
        firing = decide(
            row["cron"], row["timezone"], row["missed"], row["missed_limit"], row["fired_until"], row["at"]
        )
        return firing, None
    except Exception as error:  # noqa: BLE001  one bad schedule must not stop the others
        _log.warning("schedule cannot be computed", job_definition=row["id"], error=str(error))
        return Firing((), (), row["at"] + LOOK_AGAIN), str(error)[:500]


def _columns(decided: list[tuple[Record, Firing, str | None]]) -> tuple[list[Any], ...]:
    fired = [(row["id"], instant) for row, firing, _ in decided for instant in firing.fire]
    skipped = [(row["id"], firing.skipped) for row, firing, _ in decided if firing.skipped]
    never = datetime.max.replace(tzinfo=decided[0][0]["at"].tzinfo)
    return (
        [row["id"] for row, _, _ in decided],
        [row["cron"] for row, _, _ in decided],
        [row["timezone"] for row, _, _ in decided],
        [row["fired_until"] for row, _, _ in decided],
        [row["at"] for row, _, _ in decided],
        [firing.next_at or never for _, firing, _ in decided],
        [error for _, _, error in decided],
        [job for job, _ in fired],
        [instant for _, instant in fired],
        [job for job, _ in skipped],
        [instants[0] for _, instants in skipped],
        [instants[-1] for _, instants in skipped],
        [min(len(instants), COUNT_LIMIT) for _, instants in skipped],
    )
