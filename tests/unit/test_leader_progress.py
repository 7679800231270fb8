"""Which duties a leader must get on with to go on leading."""

import pytest

from supervisor.clock import boottime
from supervisor.config import Timings
from supervisor.election import NoProgress, Tenure
from supervisor.leader import Leader
from supervisor.metrics import Metrics
from supervisor.store import Store
from supervisor.wakeups import Wakeups
from tests.support.fake_clock import FakeClock


def leader_at(clock: FakeClock) -> Leader:
    store = Store("postgresql://nobody@127.0.0.1:1/none", name="test")
    tenure = Tenure(1, "w1", boottime() + 60, 0)
    return Leader(
        store, tenure, Timings(), Wakeups("w1"), Metrics(), clock=clock, domain_duties=["purge_dedup"]
    )


async def fails() -> None:
    raise RuntimeError("again and again")


async def succeeds() -> None:
    return None


async def test_a_domains_duty_is_told_and_counted_and_ends_no_tenure() -> None:
    clock = FakeClock()
    leader = leader_at(clock)
    await leader._guarded("purge_dedup", succeeds())
    clock.pass_seconds(1000)
    for name in list(leader.progress):
        await leader._guarded(name, succeeds())
    await leader._guarded("purge_dedup", fails())
    leader._require_progress()


async def test_a_duty_of_its_own_without_progress_ends_it() -> None:
    clock = FakeClock()
    leader = leader_at(clock)
    clock.pass_seconds(1000)
    for name in leader.progress.keys() - {"orphan"}:
        await leader._guarded(name, succeeds())
    with pytest.raises(NoProgress, match="orphan"):
        leader._require_progress()
