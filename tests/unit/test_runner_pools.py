"""What a runner takes of what it was given: whatever the leader thinks, no pool is exceeded."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import pytest

from supervisor.actor import Actor, Claim, Tools, waiting_domains
from supervisor.claims import Claims
from supervisor.config import Timings
from supervisor.hands import Hands
from supervisor.identity import Identity
from supervisor.metrics import Metrics
from supervisor.outcome import Done, Outcome
from supervisor.pools import WAITING_SLOTS
from supervisor.runner import Runner
from supervisor.store import Store
from supervisor.wakeups import Wakeups
from tests.support.stores import place_of

SLOTS = 2
WAITING = frozenset({"dedup", "scm"})


class NoTimer:
    def arm(self, deadline_boottime: float) -> None: ...

    def disarm(self) -> None: ...


class Given(Store):
    """A database in which this much was assigned to the replica, and that refuses every start."""

    def __init__(self, domains: Sequence[str]) -> None:
        super().__init__("postgresql://nowhere.invalid/none")
        self.assigned = [
            {"id": n, "version": 1, "claim_id": uuid4(), "domain": domain} for n, domain in enumerate(domains)
        ]
        self.started: list[int] = []

    async def rows(self, query: Any, *args: Any, timeout: float | None = None) -> Any:  # noqa: ARG002
        if query == "read_assigned":
            return self.assigned
        assert query == "start_runs"
        self.started += args[3]
        return [{"id": run, "answer": "REFUSED"} for run in args[3]]


async def started(given: Sequence[str], held: Sequence[str] = ()) -> list[str]:
    """The domains of what is started of this, in the order in which it was given."""
    timings, store = Timings(), Given(given)
    claims = Claims(timings, NoTimer())
    for domain in held:
        claims.hold(uuid4(), 1000, domain)
    runner = Runner(place_of(store), Identity("w1", uuid4()), {}, SLOTS, timings, claims, Wakeups("w1"),
                    Metrics(), waiting=WAITING)  # fmt: skip
    async with anyio.create_task_group() as group:
        await runner._take(Hands(group, partial(runner._execution.carry_out, group)))
    assert store.started == sorted(store.started)
    return [given[run] for run in store.started]


async def test_too_much_of_everything_starts_one_pool_of_each() -> None:
    given = [*["dedup"] * 100, *["command", "media"] * 5, *["scm"] * 100]
    assert Counter(await started(given)) == {
        "dedup": WAITING_SLOTS, "scm": WAITING_SLOTS, "command": 1, "media": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (["dedup"] * 70, {"command": 2}),
        (["command"], {"dedup": 3, "command": 1}),
        (["command", "media"], {"dedup": 3}),
        (["media", "command", "command"], {"dedup": 3}),
        ([*["dedup"] * 63, "media"], {"dedup": 1, "command": 1}),
        (["scm"] * 64, {"dedup": 3, "command": 2}),
    ],
)
async def test_what_is_held_counts_in_its_own_pool(held: list[str], expected: dict[str, int]) -> None:
    assert Counter(await started([*["dedup"] * 3, *["command"] * 3], held)) == expected


async def test_the_first_given_of_a_pool_are_the_first_started() -> None:
    assert await started(["command", "dedup", "media", "command"]) == ["command", "dedup", "media"]


def test_the_domains_that_wait_are_those_whose_runs_say_so() -> None:
    async def handle(_claim: Claim, _tools: Tools) -> Outcome:
        return Done()

    actors = [Actor("a", handle), Actor("b", handle, waits=True)]
    assert waiting_domains(actors) == {"b"}
