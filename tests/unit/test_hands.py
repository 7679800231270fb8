"""Hands: everybody who waits has one, and a burst of short work needs few."""

import anyio
import anyio.lowlevel

from supervisor.hands import Hands
from supervisor.stoppable import Stoppable
from tests.support.slowness import patient


async def test_work_that_waits_is_all_under_way_at_once() -> None:
    begun: list[int] = []
    go_on = anyio.Event()

    async def work(number: int, _hand: Stoppable) -> None:
        begun.append(number)
        await go_on.wait()

    async with anyio.create_task_group() as group:
        hands = Hands(group, work)
        hands.give(range(100))
        hands.give(range(100, 150))
        with anyio.fail_after(patient(5)):
            while len(begun) < 150:
                await anyio.lowlevel.checkpoint()
        assert begun == list(range(150))
        go_on.set()
        group.cancel_scope.cancel()


async def test_short_work_is_done_by_few_and_lets_the_others_have_a_turn() -> None:
    done: list[int] = []
    turns = 0

    async def work(number: int, _hand: Stoppable) -> None:
        done.append(number)

    async with anyio.create_task_group() as group:
        hands = Hands(group, work)
        hands.give(range(1000))
        with anyio.fail_after(patient(5)):
            while len(done) < 1000:
                turns += 1
                await anyio.lowlevel.checkpoint()
        assert done == list(range(1000))
        assert turns > 5
        assert len(hands._idle) <= 40
        group.cancel_scope.cancel()


async def test_a_hand_is_used_again() -> None:
    done: list[int] = []

    async def work(number: int, _hand: Stoppable) -> None:
        await anyio.lowlevel.checkpoint()
        done.append(number)

    async with anyio.create_task_group() as group:
        hands = Hands(group, work)
        for number in range(20):
            hands.give([number])
            with anyio.fail_after(patient(5)):
                while len(done) <= number:
                    await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert len(hands._idle) == 1
        group.cancel_scope.cancel()
