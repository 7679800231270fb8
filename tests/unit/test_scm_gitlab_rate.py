"""Requests per minute, by a clock that stands still."""

import anyio
import pytest

from actors.scm.rate import HostRate, rate_of
from tests.support.fake_clock import FakeClock


async def turns(rate: HostRate, clock: FakeClock, count: int) -> list[float]:
    times = []
    for _ in range(count):
        await rate.turn()
        times.append(clock.now())
    return times


def busiest(times: list[float], seconds: float = 60) -> int:
    return max(sum(start <= one < start + seconds for one in times) for start in times)


@pytest.mark.parametrize("rpm", [600, 60, 1])
async def test_no_minute_has_as_many_as_are_allowed(rpm: int) -> None:
    """R001-168, in whichever minute it is measured."""
    clock = FakeClock()
    times = await turns(HostRate(rpm, clock), clock, rpm * 3)
    assert busiest(times) <= rpm
    assert len(times) / (times[-1] - times[0]) * 60 <= rpm * 1.5


async def test_an_idle_hour_saves_nothing_up() -> None:
    """R001-168"""
    clock = FakeClock()
    rate = HostRate(600, clock)
    await rate.turn()
    clock.pass_seconds(3600)
    assert busiest(await turns(rate, clock, 100), 1) <= 10


async def test_a_server_that_wants_rest_gets_it_from_all() -> None:
    clock = FakeClock()
    rate = HostRate(600, clock)
    await rate.turn()
    rate.hold(30)
    began = clock.now()
    assert (await turns(rate, clock, 1))[0] >= began + 30


async def test_those_who_wait_already_wait_longer() -> None:
    class Held(FakeClock):
        """While one waits for its turn, another is told to stay away."""

        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds)
            if self.now() < 1010:
                rate.hold(100)

    clock = Held()
    rate = HostRate(60, clock)
    await rate.turn()
    await rate.turn()
    assert clock.now() >= 1101


async def test_a_host_has_one_rate_the_lowest() -> None:
    """R001-168, over several repositories of a host."""
    first, second = rate_of("rate.example.org:443", 600), rate_of("RATE.example.org:443", 300)
    assert first is second
    assert rate_of("rate.example.org:443", 500).rpm == 300
    assert rate_of("other.example.org:443", 600).rpm == 600


async def test_two_tasks_share_it() -> None:
    clock = FakeClock()
    rate, times = HostRate(600, clock), []

    async def asks() -> None:
        for _ in range(300):
            await rate.turn()
            times.append(clock.now())
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(asks)
        group.start_soon(asks)
    assert busiest(sorted(times), 1) <= 10
