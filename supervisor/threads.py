"""Blocking work in a thread that can be told to stop, and has ended when its caller goes on."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

import anyio

T = TypeVar("T")


async def in_thread(work: Callable[[Callable[[], bool]], T], executor: Executor | None = None) -> T:
    """`work` gets a function that says whether it should stop; it asks often, and then returns anything.

    A cancelled caller waits for it: a handler whose thread goes on has not ended.
    """
    stop = threading.Event()
    future = asyncio.get_running_loop().run_in_executor(executor, work, stop.is_set)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop.set()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # what a stopped thread says interests nobody
        raise
