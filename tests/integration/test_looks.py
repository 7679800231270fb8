"""A leader whose complete looks take their time: what it decides between two of them."""

from collections.abc import AsyncIterator

import pytest

from supervisor import skim
from supervisor.clock import boottime
from supervisor.config import Timings
from supervisor.election import Tenure
from supervisor.embedded import Urls
from supervisor.leader import Leader
from supervisor.metrics import Metrics
from supervisor.store import Store
from supervisor.wakeups import Wakeups
from tests.support.eventually import eventually
from tests.support.scene import Scene

SLOTS = 10


class Stage(Scene):
    store: Store

    def leader(self) -> Leader:
        tenure = Tenure(self.epoch, "w1", boottime() + 600, 0)
        return Leader(self.store, tenure, Timings(), Wakeups("w1"), Metrics())

    async def assigned(self) -> set[int]:
        rows = await self.connection.fetch("SELECT id FROM supervisor.job_run WHERE state = 'ASSIGNED'")
        return {row["id"] for row in rows}


@pytest.fixture
async def stage(database: Urls, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """As if every complete look passed a million entries of runs that have moved on."""
    monkeypatch.setattr(skim, "CHEAP_SECONDS", 0.0)
    monkeypatch.setattr(skim, "SHARE", 1e-9)
    stage = await Stage.open(database)
    assert isinstance(stage, Stage)
    stage.store = Store(database.control)
    await stage.lead("w1")
    await stage.job()
    await stage.beat("w1", slots=SLOTS)
    yield stage
    await stage.store.close()
    await stage.close()


async def test_between_complete_looks_new_runs_are_given_out_and_the_past_is_not_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skim, "LONGEST_SECONDS", 3600.0)
    leader = stage.leader()
    first = await stage.enqueue()
    await leader.assign()
    before, second = await stage.enqueue(priority=9), await stage.enqueue()
    await leader.assign()
    assert await stage.assigned() == {first, second}
    await leader.assign()
    assert before not in await stage.assigned()


async def test_what_lies_before_the_place_is_found_by_the_next_complete_look(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skim, "LONGEST_SECONDS", 0.2)
    leader = stage.leader()
    await stage.enqueue()
    await leader.assign()
    before = await stage.enqueue(priority=9)

    async def given() -> bool:
        await leader.assign()
        return before in await stage.assigned()

    await eventually(given)


async def test_no_worker_is_given_more_than_it_has_room_for_between_two_counts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skim, "LONGEST_SECONDS", 3600.0)
    leader = stage.leader()
    for _ in range(2 * SLOTS):
        await stage.enqueue()
        await leader.assign()
    assert len(await stage.assigned()) == SLOTS


async def test_what_has_ended_makes_room_between_two_counts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skim, "LONGEST_SECONDS", 3600.0)
    leader = stage.leader()
    for _ in range(SLOTS):
        await stage.enqueue()
        await leader.assign()
    ended = min(await stage.assigned())
    await stage.start(ended)
    await stage.finish(ended)
    last = await stage.enqueue()
    await leader.assign()
    assert last in await stage.assigned()
