"""What is kept for a time and then goes, and what moves out before: beside the leader's other duties.

Each turn is a bounded number of rows in one fenced call that waits for nobody. The artifacts of what was
removed are deleted afterwards, from a list that was written with the removal: a crash in between loses
nothing and deletes nothing that is still referred to. A local store is reached on its own host only, so what
it holds waits in the list until a leader there takes it.

Nothing here is urgent. A turn may take long (one log can be gigabytes), so it has a loop of its own and a
leader is not replaced because it makes no progress.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from supervisor.archive import Archive, Call
from supervisor.artifacts import ArtifactError, Artifacts, Elsewhere, InvalidKey
from supervisor.clock import Clock, jitter
from supervisor.errors import LostTenure, OutcomeUnknown, TrustOver
from supervisor.logs import logger
from supervisor.metrics import Metrics
from supervisor.store import Store

ROOTS: Final = 500
DISCARDED: Final = 200
IDLE_SECONDS: Final = 10.0
BUSY_SECONDS: Final = 0.1
RARELY_SECONDS: Final = 21600.0

_log = logger("retention")


class Retention:
    """`call` sends a fenced statement under the leader's epoch. Without artifacts logs stay."""

    def __init__(
        self,
        store: Store,
        call: Call,
        artifacts: Artifacts | None,
        metrics: Metrics,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._call = call
        self._artifacts = artifacts
        self._metrics = metrics
        self._clock = clock or Clock()
        self._limit = ROOTS
        self._after = 0
        self._rarely_due = self._clock.now()
        self._archive = Archive(store, call, artifacts) if artifacts is not None else None

    async def run(self) -> None:
        """For as long as the tenure lasts."""
        while True:
            more = await self.run_once()
            await self._clock.sleep(BUSY_SECONDS if more else jitter(IDLE_SECONDS))

    async def run_once(self) -> bool:
        """One turn of each duty, whatever happens to the others; True when one of them has more to do."""
        more = await self._turn("prune", self.prune)
        if self._archive is not None:
            more |= await self._turn("archive", self._archive.run_once)
            more |= await self._turn("discard", self.discard)
        if self._clock.now() >= self._rarely_due:
            self._rarely_due = self._clock.now() + RARELY_SECONDS
            await self._turn("tidy", self.tidy)
        return more

    async def prune(self) -> bool:
        """A step that takes too long is tried smaller: one root may have gigabytes of log."""
        limit = self._limit
        try:
            removed = {row["what"]: row["removed"] for row in await self._call("prune_step", limit)}
        except OutcomeUnknown:
            self._limit = max(1, limit // 2)
            raise
        self._limit = min(ROOTS, limit * 2)
        if any(removed.values()):
            _log.info("removed after their retention", **removed)
        return any(count >= limit for what, count in removed.items() if what not in ("runs", "log_lines"))

    async def discard(self) -> bool:
        """Delete artifacts that nothing refers to; one that cannot be deleted is passed by, and told."""
        if self._artifacts is None or not (places := await self._artifacts.places()):
            return False
        rows = await self._store.rows("list_discarded", places, self._after, DISCARDED)
        self._after = rows[-1]["id"] if len(rows) == DISCARDED else 0
        gone: list[int] = []
        failed: ArtifactError | None = None
        for row in rows:
            try:
                await self._artifacts.delete(await self._artifacts.key_of(row["uri"]))
            except (InvalidKey, Elsewhere) as error:
                # it never was an artifact of ours, and never will be
                _log.warning("discarded address is not ours", error=str(error))
            except ArtifactError as error:
                failed = error
                continue
            gone.append(row["id"])
        if gone:
            await self._call("forget_discarded", gone)
        if failed is not None:
            raise failed
        return len(rows) == DISCARDED

    async def tidy(self) -> bool:
        """Empty months of the history, and what interrupted writers left."""
        await self._call("drop_partitions")
        if self._artifacts is not None:
            await self._artifacts.sweep()
        return False

    async def _turn(self, name: str, turn: Callable[[], Awaitable[bool]]) -> bool:
        try:
            return await turn()
        except (LostTenure, TrustOver):
            raise
        except Exception as error:  # noqa: BLE001  whatever one duty does, the others go on
            self._metrics.duty_errors.labels(name).inc()
            _log.warning("duty failed", duty=name, error=f"{type(error).__name__}: {error}")
            return False
