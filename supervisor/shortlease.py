"""The short lease of a run, `jobrun:lease:{id}` in Redis: a courtesy between leaders, never a right.

While one leader is about to assign some runs, another one that believes itself leader leaves them alone. That
spares a refused call, no more: who may assign is decided by the fence, and which run by its version. So
whatever Redis says can only put off a decision, and not for long: from the first time it says "taken" it is
believed for TTL_SECONDS, by this leader's own clock, and then not asked for a while. Honest leases are gone
by then, and lies about every run cost no more than a lie about one.
"""

import math
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from supervisor.clock import Clock
from supervisor.logs import logger

if TYPE_CHECKING:
    from supervisor.hints import Hints

TTL_SECONDS: Final = 2.0
UNASKED_SECONDS: Final = 30.0
NONE: Final[frozenset[int]] = frozenset()

_log = logger("shortlease")


class ShortLeases:
    """Of one leader's tenure. Without Redis, nothing is ever put off."""

    def __init__(self, hints: "Hints | None" = None, clock: Clock | None = None) -> None:
        self._hints = hints
        self._clock = clock or Clock()
        self._token = uuid.uuid4().hex
        self._first_refusal = -math.inf
        self._putting_off = False

    @asynccontextmanager
    async def hold(self, run_ids: Sequence[int]) -> AsyncIterator[frozenset[int]]:
        """While the runs are decided on; gives those to leave for a later tick."""
        later = await self._ask(run_ids)
        try:
            yield later
        finally:
            if self._hints is not None:
                self._hints.drop([run_id for run_id in run_ids if run_id not in later], self._token)

    def patience(self, seconds: float) -> float:
        """How long to wait before the next look: what was put off is not put off for longer than that."""
        if not self._putting_off:
            return seconds
        self._putting_off = False
        return max(0.0, min(seconds, self._first_refusal + TTL_SECONDS - self._clock.now()))

    async def _ask(self, run_ids: Sequence[int]) -> frozenset[int]:
        if self._hints is None or self._over():
            return NONE
        refused = await self._hints.take(run_ids, self._token, TTL_SECONDS)
        if not refused or self._over():
            return NONE
        now = self._clock.now()
        if now - self._first_refusal >= TTL_SECONDS:
            self._first_refusal = now
            _log.info("short leases are taken, leaving the runs for a moment", runs=len(refused))
        self._putting_off = True
        return refused

    def _over(self) -> bool:
        """Redis has said "taken" for long enough, and is not asked for now."""
        return TTL_SECONDS <= self._clock.now() - self._first_refusal < TTL_SECONDS + UNASKED_SECONDS
