"""Wait for a condition, never for a time.

Timeouts are counted in seconds of a quiet machine: a busy one gets more (tests/support/slowness.py).
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import anyio

from tests.support.slowness import Allowance

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
    allowance = Allowance(timeout)
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
        if allowance.used_up():
            name = what or getattr(condition, "__name__", "the condition")
            raise AssertionError(f"{name} did not hold within {allowance}; at last: {last!r}")
        await anyio.sleep(interval)
