"""A replica that works on the example domain: `python -m tests.support.example_domain.replica`.

Its handler notes each execution in a file (boottime, what, key) and takes as long as the payload says.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import anyio

from supervisor import Actor, Claim, Done, Outcome, Tools
from supervisor.clock import boottime
from supervisor.config import Settings, load_settings
from supervisor.domain import Domain
from supervisor.replica import Replica
from supervisor.urls import RuntimeUrls
from supervisor.wiring import run_replica
from tests.support.example_domain import JOBS

NOTES = "TENURE_TEST_NOTES"
LEASE_SECONDS = 7.0


async def handle(claim: Claim, _tools: Tools) -> Outcome:
    with Path(os.environ[NOTES]).open("a", buffering=1) as notes:
        print(boottime(), "begin", claim.key, file=notes)
        for _ in range(int(claim.payload["payload"].get("seconds", 0) * 10)):
            await anyio.sleep(0.1)
            print(boottime(), "alive", claim.key, file=notes)
        print(boottime(), "end", claim.key, file=notes)
    return Done()


ACTOR = Actor(domain="example", handle=handle, lease=replace(JOBS, lease_seconds=LEASE_SECONDS), slots=4)


class WithExample(Replica):
    def __init__(
        self,
        settings: Settings,
        urls: RuntimeUrls,
        actors: Mapping[str, Actor],
        domains: Sequence[Domain] = (),
    ) -> None:
        super().__init__(settings, urls, {**actors, ACTOR.name: ACTOR}, domains)


if __name__ == "__main__":
    sys.exit(run_replica(load_settings(), WithExample))
