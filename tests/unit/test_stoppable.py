"""One task, many pieces of work: a stop reaches the work it names, until it has ended, and no other."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable

import anyio
import anyio.lowlevel
import pytest

from supervisor.stoppable import Stoppable


async def checkpoints(count: int) -> str:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()
    return "done"


async def stopping(own: Stoppable, name: object, then: int = 0) -> str:
    """Work that is stopped while it waits."""
    asyncio.get_running_loop().call_soon(own.stop, name)
    await anyio.sleep_forever()
    return await checkpoints(then)


async def test_one_scope_serves_for_many() -> None:
    with Stoppable() as own:
        scopes = set()
        for name in range(5):
            assert await own.do(name, checkpoints(2)) == "done"
            scopes.add(own._scope)
        assert len(scopes) == 1


async def test_a_late_stop_of_what_has_ended_does_not_touch_the_next() -> None:
    first, second = object(), object()
    with Stoppable() as own:
        assert await own.do(first, checkpoints(1)) == "done"
        own.stop(first)
        assert await own.do(second, _with_stops_of(own, first)) == "done"
        own.stop(second)
        assert own._scope is not None
        assert not own._scope.cancel_called


async def _with_stops_of(own: Stoppable, other: object) -> str:
    for _ in range(10):
        own.stop(other)
        asyncio.get_running_loop().call_soon(own.stop, other)
        await anyio.lowlevel.checkpoint()
    return "done"


async def test_the_next_after_a_stopped_one_goes_on() -> None:
    first, second = object(), object()
    with Stoppable() as own:
        assert await own.do(first, stopping(own, first)) is None
        for _ in range(3):
            assert await own.do(second, _with_stops_of(own, first)) == "done"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_stop_that_lands_as_the_work_ends_is_gone_with_it() -> None:
    """Its answer is there already when it is cancelled: it may still take it, and the next is not stopped."""
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    first = object()

    def answer_and_stop() -> None:
        answer.set_result("just in time")
        own.stop(first)

    async def wait() -> str:
        asyncio.get_running_loop().call_soon(answer_and_stop)
        return await answer

    with Stoppable() as own:
        assert await own.do(first, wait()) == "just in time"
        assert await own.do(object(), checkpoints(10)) == "done"


async def test_what_does_not_heed_it_is_stopped_again() -> None:
    caught = 0

    async def stubborn() -> str:
        nonlocal caught
        while True:
            try:
                await anyio.sleep_forever()
            except asyncio.CancelledError:
                caught += 1
                if caught == 3:
                    raise

    name = object()
    with Stoppable() as own:
        asyncio.get_running_loop().call_soon(own.stop, name)
        assert await own.do(name, stubborn()) is None
        assert caught == 3
        assert await own.do(object(), checkpoints(5)) == "done"


async def test_a_shielded_end_is_not_interrupted() -> None:
    ended = []

    async def careful() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await checkpoints(5)
                ended.append("in order")
        return "never"

    name = object()
    with Stoppable() as own:
        asyncio.get_running_loop().call_soon(own.stop, name)
        assert await own.do(name, careful()) is None
    assert ended == ["in order"]


async def test_a_scope_left_open_is_not_handed_on() -> None:
    """Its deadline would end with somebody else's work."""

    async def pieces() -> AsyncIterator[int]:
        with anyio.move_on_after(0):
            yield 1

    left = pieces()

    async def careless() -> int:
        return await anext(left)

    async def task() -> None:
        with Stoppable() as own:
            await own.do(object(), careless())
            went_on.append(True)

    went_on: list[bool] = []
    with pytest.raises(RuntimeError, match="cancel scope"):
        await asyncio.create_task(task())
    assert not went_on


async def test_errors_and_the_cancellation_of_the_task_pass() -> None:
    async def fails() -> None:
        raise ValueError("its own")

    with Stoppable() as own:
        with pytest.raises(ValueError, match="its own"):
            await own.do(1, fails())
        assert await own.do(2, checkpoints(1)) == "done"
        with anyio.CancelScope() as outer:
            asyncio.get_running_loop().call_soon(outer.cancel)
            with Stoppable() as inner:
                await inner.do(3, anyio.sleep_forever())
        assert outer.cancelled_caught
        assert await own.do(4, checkpoints(1)) == "done"


async def test_work_that_swallows_a_cancellation_of_its_task_leaves_the_next_stoppable() -> None:
    async def swallows() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await anyio.lowlevel.checkpoint()
        except asyncio.CancelledError:
            return "went on"
        return "not cancelled"

    name = object()

    async def task() -> None:
        with Stoppable() as own:
            assert await own.do(object(), swallows()) == "went on"
            assert await own.do(name, stopping(own, name)) is None
            assert await own.do(object(), checkpoints(2)) == "done"

    await asyncio.create_task(task())


@pytest.mark.parametrize("seed", range(20))
async def test_stops_from_a_thread_hit_whom_they_name_or_nobody(seed: int) -> None:
    """Some work waits for its stop, the rest must never see one, however late the stops of the others are."""
    chance = random.Random(seed)  # noqa: S311  replayed by its seed
    soon = asyncio.get_running_loop().call_soon_threadsafe
    asked: list[Callable[[], object]] = []
    some, done = threading.Event(), threading.Event()

    def thread() -> None:
        while not done.is_set():
            some.wait(1)
            some.clear()
            for stop in asked:  # again and again, also of what has long ended
                stop()

    async def waits() -> str:
        some.set()
        await anyio.sleep_forever()
        return "never"

    worker = threading.Thread(target=thread)
    worker.start()
    try:
        with Stoppable() as own:
            for _ in range(150):
                name = object()
                if chance.random() < 0.3:
                    asked.append(lambda name=name: soon(own.stop, name))  # type: ignore[misc]
                    assert await own.do(name, waits()) is None
                else:
                    assert await own.do(name, checkpoints(chance.randrange(4))) == "done"
                    some.set()
    finally:
        done.set()
        some.set()
        worker.join()
