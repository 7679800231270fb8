"""One call for what several handlers ask at about the same time.

    together = Together(read_all)
    group.start_soon(together.run)
    answer = await together.ask(question)      # in each handler

`carry_out` gets the questions that came while it was busy, or in the same turn of the event loop, and answers
each in its place; an exception among the answers is raised where its question was asked, and one that
`carry_out` raises, for all of them. With `gather` more are waited for: as long as it says so of those that
are there, and at most `gather_seconds`; `look_again` when what it goes by has changed.

A cancelled caller waits for what is under way, as it would for a thread of its own, unless it need not end;
what nobody hears any more is handed to `drop`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import anyio

Q = TypeVar("Q")
A = TypeVar("A")


def gather_none(_waiting: int) -> bool:
    return False


def forget(_answer: object) -> None:
    return


class Together(Generic[Q, A]):
    def __init__(
        self,
        carry_out: Callable[[Sequence[Q]], Awaitable[Sequence[A | Exception]]],
        *,
        must_end: bool = True,
        gather: Callable[[int], bool] = gather_none,
        gather_seconds: float = 0.0,
        drop: Callable[[A], None] = forget,
    ) -> None:
        self._carry_out = carry_out
        self._must_end = must_end
        self._gather = gather
        self._gather_seconds = gather_seconds
        self._drop = drop
        self._waiting: dict[asyncio.Future[A], Q] = {}
        self._changed = asyncio.Event()

    async def ask(self, question: Q) -> A:
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = question
        self._changed.set()
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if self._waiting.pop(answer, None) is None:
                await self._let_go(answer)
            raise

    def look_again(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        while True:
            await self._until_ready()
            waiting, self._waiting = self._waiting, {}
            if not waiting:  # all of them were cancelled
                continue
            answers: Sequence[A | Exception]
            try:
                # those who wait for its end, cancelled or not, are told of it
                with anyio.CancelScope(shield=self._must_end):
                    answers = await self._carry_out(list(waiting.values()))
            except Exception as error:  # noqa: BLE001  whoever asked decides what it means
                answers = [error] * len(waiting)
            for future, answer in zip(waiting, answers, strict=True):
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    async def _let_go(self, answer: asyncio.Future[A]) -> None:
        if self._must_end:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([answer])
        if answer.done():
            self._unheard(answer)
        else:
            answer.add_done_callback(self._unheard)

    def _unheard(self, answer: asyncio.Future[A]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._drop(answer.result())

    async def _until_ready(self) -> None:
        while not self._waiting:
            await self._change()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._gather_seconds or None):
                while self._waiting and self._gather(len(self._waiting)):
                    await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
