"""The batches of one sync on their way into the ledger, call by call, each under its number.

Of a batch that the ledger refuses a strict sync keeps nothing and ends. A tolerant one halves it until the
refused records stand alone, writes those down as failures of the run, and stores the others. The watermark
goes with the last part: nothing moves it past what is neither stored nor written down.
"""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from actors.scm.records import Unreadable
from supervisor.asking import ask
from supervisor.errors import BadInput, TenureError
from supervisor.store import Store

__all__ = ["RecordRefused", "Writer", "split"]

Part = tuple[str, ...]
"""What one call takes: lists of facts, as JSON."""


class RecordRefused(TenureError):
    """the ledger refused a record: {what}"""

    hint = "nothing of its batch was kept; mode best_effort writes such a record down and passes over it"


class Writer:
    def __init__(
        self, store: Store, token: tuple[str, UUID], query: str, number: int, *, tolerant: bool
    ) -> None:
        self._store = store
        self._token = token
        self._query = query
        self._number = number
        self._tolerant = tolerant

    async def write(self, parts: Sequence[Part], mark: str | None, state: str | None) -> None:
        *first, last = parts
        for part in first:
            await self._write(part, None, None)
        await self._write(last, mark, state)

    async def note(self, failure: Unreadable) -> None:
        """Once for a run, however often it is sent."""
        await ask(self._store, "note_sync_failure", *self._token, *failure)

    async def _write(self, part: Part, mark: str | None, state: str | None) -> None:
        try:
            await self._call(part, mark, state)
        except BadInput as refusal:
            facts = [json.loads(text) for text in part]
            if not self._tolerant or not any(facts):
                raise RecordRefused(what=str(refusal)) from refusal
            pieces = split(facts)
            if not pieces:
                await self.note(Unreadable(_name(facts), "record_refused", str(refusal)))
            for piece in pieces:
                await self._write(tuple(map(json.dumps, piece)), None, None)
            if mark is not None or state is not None:
                await self._call(("[]",) * len(part), mark, state)

    async def _call(self, part: Part, mark: str | None, state: str | None) -> None:
        await ask(self._store, self._query, *self._token, self._number + 1, *part, mark, state)
        self._number += 1


def split(facts: Sequence[list[Any]]) -> list[list[list[Any]]]:
    """The same in smaller calls, in order: a list each, or halves of the only one; none of a single fact."""
    filled = [place for place, some in enumerate(facts) if some]
    if len(filled) > 1:
        return [[some if at == place else [] for at, some in enumerate(facts)] for place in filled]
    (place,) = filled
    some = facts[place]
    middle = len(some) // 2
    return [
        [half if at == place else [] for at in range(len(facts))]
        for half in (some[:middle], some[middle:])
        if middle
    ]


def _name(facts: Sequence[list[Any]]) -> str:
    ((fact,),) = [some for some in facts if some]
    names = {"rev": "revision", "sha": "commit", "source_event_id": "event", "iid": "merge request"}
    return next(f"{kind} {fact[key]}" for key, kind in names.items() if key in fact)
