"""How many files each library has. They are counted themselves, so once in a while for all who look."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from supervisor.console.kept import Kept
from supervisor.errors import OutcomeUnknown
from supervisor.store import Record, Store

KEPT_SECONDS: Final = 30.0
COUNT_SECONDS: Final = 15.0


class Counts:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept = Kept(self._read, KEPT_SECONDS)

    async def get(self) -> Mapping[int, Record] | None:
        """By library; None = there are too many to be counted for a page."""
        return await self._kept.get()

    async def _read(self) -> Mapping[int, Record] | None:
        try:
            rows = await self._store.rows("see_library_counts", timeout=COUNT_SECONDS)
        except OutcomeUnknown:
            return None
        return {row["library_id"]: row for row in rows}


def counted_at(counts: Mapping[int, Record] | None) -> datetime | None:
    return next((row["counted_at"] for row in (counts or {}).values()), None)
