"""Replicas with one thing taken out or added, for tests.

They show what a guard is for (without it the next one must hold), or bring about a situation that is hard to
get otherwise.
"""

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from supervisor.actor import Actor
from supervisor.config import Settings
from supervisor.domain import Domain
from supervisor.election import Election, Tenure
from supervisor.errors import OutcomeUnknown
from supervisor.leader import Leader
from supervisor.replica import Replica
from supervisor.urls import RuntimeUrls

ORDERS = "TENURE_TEST_ORDERS"
Domains = Sequence[Domain]


class LeadsOnly(Replica):
    """Has no actor: it leads, and never holds a claim."""

    def __init__(
        self, settings: Settings, urls: RuntimeUrls, _actors: Mapping[str, Actor], domains: Domains = ()
    ) -> None:
        super().__init__(settings, urls, {}, domains)


class NeverLeads(Replica):
    def _make_election(self) -> Election:
        return _with(_NoElection, self)


class NeverStarts(Replica):
    """Sees to what it is assigned, and starts none of it."""

    def __init__(
        self, settings: Settings, urls: RuntimeUrls, actors: Mapping[str, Actor], domains: Domains = ()
    ) -> None:
        super().__init__(settings, urls, actors, domains)

        async def take(_hands: object) -> None:
            return

        self._runner._take = take  # type: ignore[method-assign,assignment]


class Neglects(NeverLeads):
    """Beats, and never looks for what it is assigned: a loop that is blocked, connections that are dead."""

    def __init__(
        self, settings: Settings, urls: RuntimeUrls, actors: Mapping[str, Actor], domains: Domains = ()
    ) -> None:
        super().__init__(settings, urls, actors, domains)
        self._runner.draining = True


class ShortLeases(Replica):
    """Leases as short as the timings allow: what a killed replica held is soon free."""

    def __init__(
        self, settings: Settings, urls: RuntimeUrls, actors: Mapping[str, Actor], domains: Domains = ()
    ) -> None:
        bound = settings.timings.stop_bound
        short = {
            name: actor
            if actor.lease is None
            else replace(actor, lease=replace(actor.lease, lease_seconds=bound))
            for name, actor in actors.items()
        }
        super().__init__(settings, urls, short, domains)


class WithoutTrust(LeadsOnly):
    """A leader that never doubts itself and ignores the answers to its renewals: the fence alone is left."""

    def _make_election(self) -> Election:
        return _with(_BlindElection, self)

    async def lead(self, tenure: Tenure) -> None:
        await _BlindLeader(self.store, tenure, self.settings.timings, self._wakeups, self.metrics).run()


class NeverStops(Replica):
    """Believes in its claims for hours after the last word: no self-stop, no dead man's timer."""

    def __init__(
        self, settings: Settings, urls: RuntimeUrls, actors: Mapping[str, Actor], domains: Domains = ()
    ) -> None:
        super().__init__(settings, urls, actors, domains)
        self._claims._timings = replace(settings.timings, self_stop=10_000.0)


class Blockable(NeverLeads):
    """Blocks its event loop when a file says so: `sleep 3`, or `hold 3` to keep the interpreter's lock."""

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._obey)
            await super().run()
            group.cancel_scope.cancel()

    async def _obey(self) -> None:
        orders = Path(os.environ[ORDERS])
        while True:
            await anyio.sleep(0.05)
            if orders.exists():
                kind, seconds = orders.read_text().split()
                orders.unlink()
                if kind == "hold":
                    ctypes.PyDLL(None).usleep(int(float(seconds) * 1e6))
                else:
                    time.sleep(float(seconds))  # blocking the loop is the point


class _NoElection(Election):
    async def attempt(self) -> Tenure | None:
        return None


class _BlindTenure(Tenure):
    def trusted(self, _now: float) -> bool:
        return True


class _BlindElection(Election):
    async def attempt(self) -> Tenure | None:
        tenure = await super().attempt()
        if tenure is None:
            return None
        return _BlindTenure(tenure.epoch, tenure.holder, tenure.trusted_until, tenure.quarantined_until)

    async def _renew(self, tenure: Tenure) -> None:
        while True:
            await self._clock.sleep(self._timings.renew_retry)
            with suppress(OutcomeUnknown):  # it was frozen in the middle of the call
                await self._store.row(
                    "renew_tenure", tenure.epoch, self._worker_id, self._timings.leader_lease
                )


class _BlindLeader(Leader):
    def _require_progress(self) -> None:
        """Nor does it wonder how long it has done nothing."""


def _with(kind: type[Election], replica: Any) -> Election:
    return kind(
        replica.store,
        replica.worker_id,
        replica.settings.timings,
        replica._memory,
        replica._wakeups,
        replica.metrics,
    )


VARIANTS: dict[str, type[Replica]] = {
    "plain": Replica,
    "leads-only": LeadsOnly,
    "never-leads": NeverLeads,
    "never-starts": NeverStarts,
    "neglects": Neglects,
    "short-leases": ShortLeases,
    "without-trust": WithoutTrust,
    "never-stops": NeverStops,
    "blockable": Blockable,
}
