"""The slots of a replica for runs, in pools: those who work share one, each domain that only waits has one.

A run that waits for rows costs next to nothing. In the slots of those who work it would only keep them out:
as many of its kind as there are slots would stop every other domain. Pure.
"""

from collections.abc import Mapping
from typing import Final

WAITING_SLOTS: Final = 64
"""Of each domain whose runs only wait, on each replica."""

Pool = str | None
"""A domain that waits; None = all others together."""


def pool_of(domain: str, waiting: frozenset[str]) -> Pool:
    return domain if domain in waiting else None


def size_of(pool: Pool, slots: int) -> int:
    return slots if pool is None else WAITING_SLOTS


def held_in(pool: Pool, held_by: Mapping[str, int], waiting: frozenset[str]) -> dict[str, int]:
    """Of what a replica holds by domain, that in this pool."""
    return {domain: count for domain, count in held_by.items() if pool_of(domain, waiting) == pool}


def free_in(pool: Pool, slots: int, held_by: Mapping[str, int], waiting: frozenset[str]) -> int:
    """Never less than none: a replica may hold more than a new setting or another leader's view allows."""
    return max(0, size_of(pool, slots) - sum(held_in(pool, held_by, waiting).values()))
