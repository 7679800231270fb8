"""Forgetting a library, however large: its files in parts, then the library itself."""

from typing import Final

from supervisor.store import Store

PART: Final = 5000


async def remove_library(store: Store, actor: str, name: str) -> int:
    """Its id. Interrupted, it is a library without some of its files: a scan finds them again."""
    while await store.value("empty_library_root", name, PART):
        pass
    removed: int = await store.value("remove_library_root", actor, name)
    return removed
