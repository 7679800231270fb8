"""Hashes of small files as they are first seen, so that their rows are written once and not twice.

Only where a hash was asked for together with the scan, and only in a stretch of the walk of which nothing is
known yet; where only duplicates are wanted, only of files with another of their size in this walk so far. All
that does not go smoothly is left out and has no hash: a file that changes, was changed just now, cannot be
read or has its partner elsewhere is the business of the hashing that follows the scan, which says what is
wrong with it.

Files that have to be waited for are left to it as well: its batches are shared by threads and replicas, and
this is one thread.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

from actors.dedup.confine import Beneath
from actors.dedup.digest import hash_unchanged
from actors.dedup.hashing import SMALL_BYTES, Algorithm
from actors.dedup.walk import Batch

PART: Final = 250
SLOW_SECONDS: Final = 0.25e-3
"""A file that takes longer than this comes from a disk or over a network."""
GRACE_FILES: Final = 1000
"""A machine that is busy with something else holds up a few of them."""
LEFT_BATCHES: Final = 4
"""As many are left to the hashing after one that was slow."""


class Early:
    def __init__(self, algorithm: Algorithm, *, only_duplicates: bool) -> None:
        self._algorithm = algorithm
        self._only_duplicates = only_duplicates
        self._sizes: set[int] = set()  # of small files: they are not many
        self._to_leave = 0

    @classmethod
    def asked_for(cls, payload: Mapping[str, Any]) -> Self | None:
        """As the job says."""
        if not payload.get("hash"):
            return None
        return cls(payload.get("algorithm") or "blake3", only_duplicates=payload.get("mode") == "duplicates")

    def pays(self) -> bool:
        """Asked once for each batch."""
        self._to_leave = max(0, self._to_leave - 1)
        return not self._to_leave

    def hash(self, root: Beneath, batch: Batch, should_stop: Callable[[], bool]) -> None:
        """Fill in the hashes of the batch, each of the state that the walk saw."""
        wanted = self._wanted(batch.sizes)
        batch.hashes = [None] * len(batch.paths)
        began = time.monotonic()
        for start in range(0, len(wanted), PART):
            part = wanted[start : start + PART]
            items = [(batch.paths[n], batch.sizes[n], batch.mtimes_ns[n], batch.inodes[n]) for n in part]
            for number, value in zip(part, hash_unchanged(root, items, self._algorithm), strict=True):
                batch.hashes[number] = value
            if time.monotonic() - began > SLOW_SECONDS * max(GRACE_FILES, start + PART):
                self._to_leave = LEFT_BATCHES
                break
            if should_stop():
                break

    def _wanted(self, sizes: Sequence[int]) -> list[int]:
        small = [number for number, size in enumerate(sizes) if size <= SMALL_BYTES]
        if not self._only_duplicates:
            return small
        here = Counter(sizes[number] for number in small)
        seen = self._sizes
        partnered = {size for size, count in here.items() if count > 1 or size in seen}
        seen.update(here)
        return [number for number in small if sizes[number] in partnered]
