"""Can this replica work? Asked of the database at most once a second, however often a probe asks."""

from typing import Final

import anyio

from supervisor.api.view import ReplicaView
from supervisor.clock import boottime
from supervisor.errors import TenureError

PATIENCE_SECONDS: Final = 1.0
KEPT_SECONDS: Final = 1.0


class Readiness:
    def __init__(self, replica: ReplicaView) -> None:
        self._replica = replica
        self._lock = anyio.Lock()
        self._answer: str | None = None
        self._asked_at = float("-inf")

    async def complaint(self) -> str | None:
        """Why not, or None. A follower is ready: every replica works."""
        if self._replica.draining:
            return "draining"
        async with self._lock:
            if boottime() - self._asked_at >= KEPT_SECONDS:
                self._answer = await self._ask()
                self._asked_at = boottime()
            return self._answer

    async def _ask(self) -> str | None:
        try:
            with anyio.fail_after(PATIENCE_SECONDS):
                writable = await self._replica.store.value("ping_database")
        except TimeoutError:
            return f"the database does not answer within {PATIENCE_SECONDS:g} s"
        except TenureError as error:
            return str(error)
        return None if writable else "the database is a standby that cannot be written to"
