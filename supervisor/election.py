"""Election: who leads, under which epoch, and until when it may believe it.

A candidate asks the database for a tenure. The answer is an epoch greater than any before, and the holder
trusts itself until R seconds after it *sent* the last renewal that was answered (CLOCK_BOOTTIME). When that
moment passes it stops acting and stops renewing, so that a leader whose answers are lost is replaced; the
lease lasts longer than the trust (L > R), so the next leader comes after it stopped. None of this is the
safety: a deposed leader's write is refused by the fence inside the writing call. What is NOT guaranteed:
that there is a leader at every moment, or that a leader learns of its end before its next write is refused.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio
from structlog.contextvars import bound_contextvars

from supervisor.clock import Clock, jitter
from supervisor.config import Timings
from supervisor.errors import (
    DatabaseUnreachable,
    LostTenure,
    OutcomeUnknown,
    TrustOver,
    UnsafeServer,
    first_of,
)
from supervisor.logs import logger
from supervisor.memory import Memory
from supervisor.metrics import Metrics
from supervisor.store import Store
from supervisor.wakeups import Wakeups

POLL_SECONDS: Final = 1.5

_log = logger("election")


@dataclass(slots=True)
class Tenure:
    """A term of leadership: an identity, and how long its holder may trust it."""

    epoch: int
    holder: str
    trusted_until: float
    quarantined_until: float

    def trusted(self, now: float) -> bool:
        return now < self.trusted_until


class NoProgress(Exception):
    """A duty of the leader has been stuck for too long; another replica may do better."""


Lead = Callable[[Tenure], Awaitable[None]]


class Election:
    def __init__(
        self,
        store: Store,
        worker_id: str,
        timings: Timings,
        memory: Memory,
        wakeups: Wakeups,
        metrics: Metrics,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._worker_id = worker_id
        self._timings = timings
        self._memory = memory
        self._wakeups = wakeups
        self._metrics = metrics
        self._clock = clock or Clock()
        self.tenure: Tenure | None = None

    async def run(self, lead: Lead) -> None:
        """Stand for election and lead, for ever; cancelled, it ends the leading first and then resigns."""
        while True:
            tenure = await self._campaign()
            reason = await self._serve(tenure, lead)
            _log.warning("tenure over", epoch=tenure.epoch, reason=reason)
            if reason in ("REQUESTED", "NO_PROGRESS"):
                await self._resign(tenure, reason)
                # the others go first
                await self._clock.sleep(self._timings.leader_lease / 2)

    async def _campaign(self) -> Tenure:
        while True:
            try:
                tenure = await self.attempt()
                self._metrics.unsafe_server.set(0)
                if tenure is not None:
                    return tenure
            except (DatabaseUnreachable, OutcomeUnknown) as error:
                _log.info("no election without the database", reason=str(error))
            except UnsafeServer as error:
                self._metrics.unsafe_server.set(1)
                _log.error("this server gives out no tenure", reason=str(error), hint=error.advice)
            await self._wakeups.wait("leader", jitter(POLL_SECONDS))

    async def attempt(self) -> Tenure | None:
        """Ask once. Lost answers are harmless: the epoch taken is simply never used."""
        sent = self._clock.now()
        seen = self._memory
        row = await self._store.row(
            "acquire_tenure",
            self._worker_id,
            self._timings.leader_lease,
            self._timings.stop_bound,
            seen.epoch,
            seen.system_identifier,
            seen.timeline,
        )
        if row is None:
            return None
        self._memory.learn(row["epoch"], row["system_identifier"], row["timeline"])
        # the second key: the database's clock may have been set forward since the failover
        failed_over = self._memory.moved or row["failed_over"]
        watched_until = (self._memory.met_at or 0.0) + self._timings.stop_bound if failed_over else 0.0
        return Tenure(
            epoch=row["epoch"],
            holder=self._worker_id,
            trusted_until=sent + self._timings.renew_deadline,
            quarantined_until=max(self._clock.now() + row["quarantine_seconds"], watched_until),
        )

    async def _serve(self, tenure: Tenure, lead: Lead) -> str:
        reasons: list[str] = []
        self.tenure = tenure
        self._metrics.leader.set(1)
        _log.info("leading", epoch=tenure.epoch)
        try:
            with bound_contextvars(epoch=tenure.epoch):
                async with anyio.create_task_group() as group:
                    group.start_soon(self._until_over, self._renew, tenure, reasons, group.cancel_scope)
                    group.start_soon(self._until_over, lead, tenure, reasons, group.cancel_scope)
        except BaseException:
            # drained or failed: the duties have ended, so nothing of ours is in flight any more
            with anyio.CancelScope(shield=True):
                await self._resign(tenure, "DRAINED")
            raise
        finally:
            self.tenure = None
            self._metrics.leader.set(0)
        return reasons[0]

    async def _until_over(
        self, part: Lead, tenure: Tenure, reasons: list[str], scope: anyio.CancelScope
    ) -> None:
        try:
            await part(tenure)
            reasons.append("REQUESTED")
        except* LostTenure as lost:
            self._metrics.fenced_writes.inc()
            _log.warning("refused", reason=str(first_of(lost)))
            reasons.append("FENCED")
        except* NoProgress as stuck:
            _log.error("resigning", reason=str(first_of(stuck)))
            reasons.append("NO_PROGRESS")
        except* TrustOver as over:
            _log.warning("stepping down", reason=str(first_of(over)))
            reasons.append("TRUST_OVER")
        scope.cancel()

    async def _renew(self, tenure: Tenure) -> None:
        """Returns when the holder was asked to resign; raises when the tenure or the trust in it is over."""
        while True:
            trust = tenure.trusted_until - self._clock.now()
            await self._clock.sleep(min(self._timings.renew_retry, trust))
            sent = self._clock.now()
            if not tenure.trusted(sent):
                raise TrustOver(epoch=tenure.epoch, why="no renewal was answered in time")
            try:
                row = await self._store.row(
                    "renew_tenure",
                    tenure.epoch,
                    self._worker_id,
                    self._timings.leader_lease,
                    timeout=tenure.trusted_until - sent,
                )
            except (DatabaseUnreachable, OutcomeUnknown) as error:
                _log.warning("renewal not answered", reason=str(error))
                continue
            if row is None:
                raise TrustOver(epoch=tenure.epoch, why="the renewal was refused")
            tenure.trusted_until = sent + self._timings.renew_deadline
            if row["resign_requested"]:
                return

    async def _resign(self, tenure: Tenure, reason: str) -> None:
        try:
            await self._store.value("resign_tenure", tenure.epoch, self._worker_id, reason, timeout=2)
            self._wakeups.say("leader")
        except (DatabaseUnreachable, OutcomeUnknown) as error:
            _log.warning("could not resign; the lease runs out by itself", reason=str(error))
