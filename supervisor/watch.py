"""The leader's second key: what it has itself seen stand still, by its own clock.

The database's clock can step, and after a take-over or an outage everything looks old. So nothing is taken
from a worker on the database's word alone: the leader must also have watched the same value for the whole
time.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Watch(Generic[K, V]):
    def __init__(self) -> None:
        self._seen: dict[K, tuple[V, float]] = {}

    def observe(self, facts: Mapping[K, V], at: float) -> None:
        """Facts read by an answer that came at `at`; what is not among them is forgotten."""
        self._seen = {
            key: kept if (kept := self._seen.get(key)) and kept[0] == value else (value, at)
            for key, value in facts.items()
        }

    def stood(self, key: K, value: V, now: float) -> float:
        """For how many seconds `key` has been watched at `value`."""
        seen = self._seen.get(key)
        return now - seen[1] if seen is not None and seen[0] == value else 0.0
