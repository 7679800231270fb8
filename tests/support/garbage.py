"""Garbage is collected between tests, not in the middle of one.

A test process comes to hold millions of objects, and each test of the API leaves a whole application in
cycles: to look through all of it takes seconds, in which nothing of the process moves, and calls and leases
run out. So a complete collection waits for the end of a test, and looks at what came since the last only.
"""

import gc
from typing import Final

THRESHOLDS: Final = (700, 10, 1_000_000)
"""The last is that of complete collections: never by themselves."""
OFTEN: Final = 20
"""Smaller collections since the last complete one, of some thousand objects each."""


def collect_between_tests() -> None:
    gc.set_threshold(*THRESHOLDS)
    _collect()


def test_ended() -> None:
    if gc.get_count()[2] >= OFTEN:
        _collect()


def _collect() -> None:
    gc.collect()
    gc.freeze()
