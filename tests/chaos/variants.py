"""The kinds of replica a scenario can ask for: those of tests.support.variants, and the ones chaos needs."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from supervisor.actor import Actor, Claim
from supervisor.config import Settings
from supervisor.election import Election, Tenure
from supervisor.errors import TenureError
from supervisor.execution import RunTools
from supervisor.replica import Replica
from supervisor.urls import RuntimeUrls
from supervisor.verdict import Verdict
from tests.chaos.timers import SlowClock, TrueTimers
from tests.support import variants
from tests.support.variants import Domains, NeverLeads


class NeverTimesOut(NeverLeads):
    """Only works, and does not heed how long a run may take: the leader has to."""

    def __init__(
        self, settings: Settings, urls: RuntimeUrls, actors: Mapping[str, Actor], domains: Domains = ()
    ) -> None:
        super().__init__(settings, urls, actors, domains)
        execution = self._runner._execution
        original = execution._handle

        async def handle(claim: Claim, tools: RunTools) -> Verdict:
            return await original(replace(claim, timeout_seconds=None), tools)

        execution._handle = handle  # type: ignore[method-assign]


class _StubbornElection(variants._BlindElection):
    async def _renew(self, tenure: Tenure) -> None:
        while True:
            with suppress(TenureError):
                await super()._renew(tenure)


class Blind(variants.WithoutTrust):
    """A leader that never doubts itself, also when no renewal is answered: the fence alone is left."""

    def _make_election(self) -> Election:
        return variants._with(_StubbornElection, self)


VARIANTS: Final[Mapping[str, type[Replica]]] = {
    **variants.VARIANTS,
    "never-times-out": NeverTimesOut,
    "blind": Blind,
    "slow-clock": SlowClock,
    "true-timers": TrueTimers,
}
