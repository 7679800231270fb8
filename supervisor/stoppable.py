"""One task that does one piece of work after the other, of which each can be stopped from outside.

A cancel scope costs more than a short piece of work, so one serves for many: until it was cancelled, or some
work left anything behind in it. What is to be stopped is named: a stop that comes when that work has ended
finds another name there, or none, and does nothing.
"""

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Self, TypeVar

import anyio

T = TypeVar("T")


class Stoppable:
    """Opened, used and closed by one task; `stop` is called on its event loop, between two of its steps."""

    __slots__ = ("_cancelling", "_doing", "_scope", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._scope: anyio.CancelScope | None = None
        self._doing: object = None
        self._cancelling = 0

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.__exit__(kind, error, traceback)

    async def do(self, name: object, work: Awaitable[T]) -> T | None:
        """None: it was stopped before it had a result. `name` is compared by identity."""
        scope = self._scope or self._open()
        self._doing = name
        try:
            result = await work
        except BaseException as error:
            self._doing = self._scope = None
            if scope.__exit__(type(error), error, error.__traceback__):
                return None
            raise
        self._doing = None
        if self._is_used_up(scope):
            self._scope = None
            scope.__exit__(None, None, None)
        return result

    def stop(self, name: object) -> None:
        if self._scope is not None and self._doing is name:
            self._scope.cancel()

    def _open(self) -> anyio.CancelScope:
        assert self._task is not None  # noqa: S101  opened by `with`
        self._cancelling = self._task.cancelling()
        self._scope = anyio.CancelScope()
        return self._scope.__enter__()

    def _is_used_up(self, scope: anyio.CancelScope) -> bool:
        """A scope below it that was left open would end with somebody else's work: closing ours says so."""
        assert self._task is not None  # noqa: S101  opened by `with`
        return (
            scope.cancel_called
            # not part of its surface: where it is not known, no scope is used twice
            or bool(getattr(scope, "_child_scopes", True))
            or self._task.cancelling() != self._cancelling
        )
