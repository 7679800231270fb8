"""What waits to be told: nothing is lost, left behind or told out of order; no answer means again."""

import anyio
import pytest

from supervisor.errors import BadInput, DatabaseUnreachable, OutcomeUnknown
from supervisor.logs import logger
from supervisor.outbox import BATCH, Outbox, until_answered
from tests.support.slowness import patient


async def test_the_oldest_come_first_and_no_more_than_a_batch() -> None:
    outbox = Outbox[int]()
    for number in range(BATCH + 1):
        outbox.add(number)
    with anyio.fail_after(patient(5)):
        assert await outbox.take() == list(range(BATCH))
        assert await outbox.take() == [BATCH]


async def test_a_taker_wakes_for_what_is_added_while_it_waits() -> None:
    outbox = Outbox[int]()
    taken: list[list[int]] = []

    async def take_twice() -> None:
        taken.append(await outbox.take())
        taken.append(await outbox.take())

    with anyio.fail_after(patient(5)):
        async with anyio.create_task_group() as group:
            group.start_soon(take_twice)
            await anyio.wait_all_tasks_blocked()
            assert taken == []
            outbox.add(1)
            await anyio.wait_all_tasks_blocked()
            assert taken == [[1]]
            outbox.add(2)
    assert taken == [[1], [2]]


async def test_no_answer_is_asked_for_again_and_a_refusal_is_not() -> None:
    answers: list[str | Exception] = [
        OutcomeUnknown(name="finish_runs", what="cut"),
        DatabaseUnreachable(what="gone"),
        "RECORDED",
    ]

    async def send() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    log = logger("test")
    assert await until_answered(send, log, rows=1) == "RECORDED"
    answers = [BadInput(what="no"), "RECORDED"]
    with pytest.raises(BadInput):
        await until_answered(send, log, rows=1)
    assert answers == ["RECORDED"]
