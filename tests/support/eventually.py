"""Wait for a condition, never for a time."""

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import anyio

T = TypeVar("T")


@overload
async def eventually(
    condition: Callable[[], Awaitable[T]], *, timeout: float = 10, interval: float = 0.05, what: str = ""
) -> T: ...


@overload
async def eventually(
    condition: Callable[[], T], *, timeout: float = 10, interval: float = 0.05, what: str = ""
) -> T: ...


async def eventually(
    condition: Callable[[], Any], *, timeout: float = 10, interval: float = 0.05, what: str = ""
) -> Any:
    """The first truthy value of `condition`, which may be async; an AssertionError in it means "not yet"."""
    deadline = time.monotonic() + timeout
    last: object = None
    while True:
        try:
            answer = condition()
            value = await answer if inspect.isawaitable(answer) else answer
            if value:
                return value
            last = value
        except AssertionError as error:
            last = error
        if time.monotonic() >= deadline:
            name = what or getattr(condition, "__name__", "the condition")
            raise AssertionError(f"{name} did not hold within {timeout:g} s; at last: {last!r}")
        await anyio.sleep(interval)
