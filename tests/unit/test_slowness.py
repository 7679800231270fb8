"""Bounds are counted in seconds of a quiet machine."""

import pytest

from tests.support.eventually import eventually
from tests.support.slowness import Allowance, Sample, slowness_of


class Machine:
    """A clock and a slowness that the test sets."""

    def __init__(self) -> None:
        self.now, self.slowness = 100.0, 1.0

    def allow(self, seconds: float) -> Allowance:
        return Allowance(seconds, clock=lambda: self.now, slowness=lambda: self.slowness)


def test_a_quiet_machine_uses_an_allowance_up_by_the_clock() -> None:
    machine = Machine()
    allowance = machine.allow(10)
    machine.now += 9.5
    assert not allowance.used_up()
    machine.now += 0.5
    assert allowance.used_up()


def test_what_a_slow_machine_uses_counts_by_how_slow_it_was_at_the_time() -> None:
    machine = Machine()
    allowance = machine.allow(10)
    machine.now, machine.slowness = machine.now + 40, 5.0
    assert not allowance.used_up()  # 8 of 10
    machine.now, machine.slowness = machine.now + 1, 1.0
    assert not allowance.used_up()
    machine.now += 1
    assert allowance.used_up()


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([Sample(0.2, 1.0)], 1.0),
        ([Sample(2.0, 1.0), Sample(6.0, 1.1)], 4.0),
        ([Sample(1.0, 1.0), Sample(1.0, 30.0)], 30.0),
    ],
    ids=["idle", "the mean of the queue", "a machine that stood still"],
)
def test_slowness_is_a_crowd_or_a_stop(samples: list[Sample], expected: float) -> None:
    assert slowness_of(samples) == expected


async def test_a_failed_wait_says_what_it_saw_last_and_the_load() -> None:
    seen = iter(range(10_000))

    async def one() -> bool:
        raise AssertionError(f"saw {next(seen)}")

    with pytest.raises(AssertionError, match=r"one did not hold within 0\.05 s .*load [\d.]+\).*saw \d+"):
        await eventually(one, timeout=0.05, interval=0.01)
