"""Listings of the directories that a walk comes to next, made by a few threads while it works on this one.

Threads pay only where a listing waits for a disk or a network; on what the kernel has in memory they fight
for the interpreter's lock. So a listing is made in place, and `IN_A_ROW` that have waited longer than they
worked buy the next `LISTINGS` to the threads: a single one may have waited for the lock, which is held while
the batch before is sent. What is ahead is bounded, and the order is the walk's in any case.
"""

import resource
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from actors.dedup.confine import Beneath
from actors.dedup.listing import Listing, list_directory

SLOW_SECONDS = 0.001
IN_A_ROW = 3
LISTINGS = 64


def _waits() -> int:
    """How often this thread has waited of its own accord: a thread that was merely put aside has not."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class Ahead:
    def __init__(self, root: Beneath, after: str, threads: int) -> None:
        self.root = root
        self._after = after
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._pending: dict[str, Future[Listing]] = {}
        self._bought = 0
        self._slow = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:  # its threads use the root's descriptor: none may outlive this
            self._pool.shutdown(wait=True, cancel_futures=True)

    def take(self, prefix: str) -> Listing:
        future = self._pending.pop(prefix, None)
        if future is not None and not future.cancel():
            return future.result()
        began, worked, waits = time.monotonic(), time.thread_time(), _waits()
        listing = list_directory(self.root, prefix, self._after)
        worked = time.thread_time() - worked
        is_slow = time.monotonic() - began > 2 * worked + SLOW_SECONDS and _waits() > waits
        self._slow = self._slow + 1 if is_slow else 0
        if self._slow >= IN_A_ROW:
            self._bought = LISTINGS
        return listing

    def announce(self, prefixes: Sequence[str]) -> None:
        """These come next, in this order; announced again, nothing changes."""
        if not self._bought or self.threads < 2:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, "listing")
        for prefix in prefixes:
            if prefix not in self._pending and len(self._pending) < 4 * self.threads:
                self._pending[prefix] = self._pool.submit(list_directory, self.root, prefix, self._after)
                self._bought = max(0, self._bought - 1)
