"""What several handlers ask at once is one call; each gets its own answer, a cancelled one leaves none."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from actors.dedup.together import Together
from tests.support.slowness import patient


class Bench:
    """Doubles numbers, when it is let; a negative one is refused."""

    def __init__(self, **options: Any) -> None:
        self.calls: list[list[int]] = []
        self.answers: dict[int, int | str] = {}
        self.dropped: list[int] = []
        self.open = anyio.Event()
        self.together = Together(self._carry_out, drop=self.dropped.append, **options)

    async def _carry_out(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.calls.append(list(numbers))
        await self.open.wait()
        if 13 in numbers:
            raise RuntimeError("thirteen")
        return [ValueError(f"{number}") if number < 0 else 2 * number for number in numbers]

    async def ask(self, number: int) -> None:
        try:
            self.answers[number] = await self.together.ask(number)
        except (ValueError, RuntimeError) as error:
            self.answers[number] = str(error)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[Callable[..., None]]:
        with anyio.fail_after(patient(10)):
            async with anyio.create_task_group() as service:
                service.start_soon(self.together.run)
                async with anyio.create_task_group() as group:

                    def ask(*numbers: int) -> None:
                        for number in numbers:
                            group.start_soon(self.ask, number)

                    yield ask
                service.cancel_scope.cancel()


async def test_one_turn_is_one_call_and_what_comes_meanwhile_the_next() -> None:
    bench = Bench()
    async with bench.at_work() as ask:
        ask(1, 2, 3)
        await anyio.wait_all_tasks_blocked()
        ask(4)
        ask(5)
        await anyio.wait_all_tasks_blocked()
        assert bench.calls == [[1, 2, 3]]
        bench.open.set()
    assert bench.calls == [[1, 2, 3], [4, 5]]
    assert bench.answers == {number: 2 * number for number in range(1, 6)}


async def test_a_refusal_is_of_one_and_a_failure_of_all() -> None:
    bench = Bench()
    bench.open.set()
    async with bench.at_work() as ask:
        ask(1, -2)
        await anyio.wait_all_tasks_blocked()
        ask(3, 13)
        await anyio.wait_all_tasks_blocked()
        ask(4)
    assert bench.answers == {1: 2, -2: "-2", 3: "thirteen", 13: "thirteen", 4: 8}


async def test_more_are_waited_for_until_they_are_enough_or_nobody_comes() -> None:
    coming = True
    bench = Bench(gather=lambda waiting: coming and waiting < 3, gather_seconds=600)
    bench.open.set()
    async with bench.at_work() as ask:
        ask(1, 2)
        await anyio.wait_all_tasks_blocked()
        assert bench.calls == []
        ask(3)
        await anyio.wait_all_tasks_blocked()
        ask(4)
        await anyio.wait_all_tasks_blocked()
        assert bench.calls == [[1, 2, 3]]
        coming = False
        bench.together.look_again()
    assert bench.calls == [[1, 2, 3], [4]]


async def test_they_are_not_waited_for_longer_than_said() -> None:
    bench = Bench(gather=lambda _waiting: True, gather_seconds=0.01)
    bench.open.set()
    async with bench.at_work() as ask:
        ask(1)
    assert bench.answers == {1: 2}


async def test_who_is_cancelled_before_his_turn_was_never_there() -> None:
    bench = Bench(gather=lambda _waiting: True, gather_seconds=600)
    async with bench.at_work():
        async with anyio.create_task_group() as group:
            group.start_soon(bench.ask, 1)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        bench.together.look_again()
        await anyio.wait_all_tasks_blocked()
    assert bench.calls == []


@pytest.mark.parametrize("must_end", [True, False])
async def test_who_is_cancelled_meanwhile_waits_for_the_end_if_he_must_and_his_answer_is_dropped(
    must_end: bool,
) -> None:
    bench = Bench(must_end=must_end)
    gone = anyio.Event()

    async def cancelled() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await bench.ask(1)
        gone.set()

    scopes: list[anyio.CancelScope] = []
    async with bench.at_work(), anyio.create_task_group() as group:
        group.start_soon(cancelled)
        await anyio.wait_all_tasks_blocked()
        scopes[0].cancel()
        if must_end:
            await anyio.wait_all_tasks_blocked()
            assert not gone.is_set()
        else:
            await gone.wait()
        bench.open.set()
        await gone.wait()
        await anyio.wait_all_tasks_blocked()
    assert bench.dropped == [2]
    assert bench.answers == {}


async def test_an_end_of_everything_still_ends_what_is_under_way() -> None:
    bench = Bench()
    with anyio.fail_after(patient(10)):
        async with anyio.create_task_group() as group:
            group.start_soon(bench.together.run)
            group.start_soon(bench.ask, 1)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
            bench.open.set()
    assert bench.dropped == [2]
