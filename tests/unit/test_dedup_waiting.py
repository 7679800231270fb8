"""When the end of a wait is looked for: seldom while it is far, and soon once it is near or told."""

from uuid import uuid4

import anyio
import pytest

from actors.dedup import jobs_here
from actors.dedup.waiting import (
    COUNT_SECONDS,
    FIRST_SECONDS,
    LONGEST_SECONDS,
    count_again_seconds,
    until_counted_out,
)
from tests.support.slowness import patient

JITTER = 1.5


@pytest.mark.parametrize(
    ("waited", "done", "left", "took", "longest"),
    [
        (0.0, 0, 100, 0.0, FIRST_SECONDS),
        (10.0, 0, 100, 0.0, 0.2),
        (1.0, 50, 50, 0.0, 0.25),
        (10.0, 999, 1, 0.0, FIRST_SECONDS),
        (10.0, 50, 50, 0.0, LONGEST_SECONDS),
        (100.0, 1, 50_000, 0.0, COUNT_SECONDS),
        (0.0, 0, 50_000, 0.5, 0.5),
        (10.0, -5, 105, 0.0, 0.2),
    ],
)
def test_the_end_foretells_itself(waited: float, done: int, left: int, took: float, longest: float) -> None:
    assert longest / JITTER <= count_again_seconds(waited, done, left, took) <= longest * JITTER


async def test_it_counts_until_nothing_is_left() -> None:
    left = [3, 3, 1, 0]

    async def count() -> int:
        return left.pop(0)

    with anyio.fail_after(patient(10)):
        await until_counted_out(count)
    assert left == []


async def test_whoever_waits_for_a_job_of_this_replica_is_told_of_its_end() -> None:
    job, told = uuid4(), anyio.Event()

    async def wait() -> None:
        await jobs_here.pause(job, waited=0.0)
        told.set()

    with anyio.fail_after(patient(10)):
        async with anyio.create_task_group() as group:
            with jobs_here.at_work(job):
                group.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
            await told.wait()
            # a job of another replica is looked at, as often as the wait deserves
            await jobs_here.pause(job, waited=0.0)


async def test_an_attempt_that_ends_late_does_not_hide_the_next() -> None:
    job = uuid4()
    late = jobs_here.at_work(job)
    late.__enter__()
    with jobs_here.at_work(job):
        late.__exit__(None, None, None)
        assert job in jobs_here._ENDS
    assert job not in jobs_here._ENDS
