"""Names that exist, for completion and for "did you mean": asked quickly, or not at all.

Nothing here ever fails or waits: a database that does not answer at once has no names.
"""

from collections.abc import Awaitable, Callable, Iterable
from difflib import get_close_matches
from typing import Final, TypeVar

import anyio

from supervisor.store import Store

LOOKUP_SECONDS: Final = 0.3
LIMIT: Final = 200

T = TypeVar("T")


def job_names(beginning: str = "") -> list[str]:
    async def ask(store: Store) -> list[str]:
        return [row["name"] for row in await store.rows("complete_jobs", beginning, LIMIT)]

    return _quickly(ask) or []


def runs(limit: int = LIMIT) -> list[tuple[int, str, str]]:
    """The newest, each with its job and its state."""

    async def ask(store: Store) -> list[tuple[int, str, str]]:
        rows = await store.rows("complete_runs", limit)
        return [(row["id"], row["job"] or "", row["state"]) for row in rows]

    return _quickly(ask) or []


def worker_ids() -> list[tuple[str, str]]:
    async def ask(store: Store) -> list[tuple[str, str]]:
        return [(row["worker_id"], row["state"]) for row in await store.rows("complete_workers", LIMIT)]

    return _quickly(ask) or []


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean X?`, or nothing where nothing is near."""
    shapes = {name.casefold(): name for name in known}
    near = [shapes[match] for match in get_close_matches(word.casefold(), shapes, n=3)]
    return f"did you mean {' or '.join(near)}?" if near else ""


def _quickly(ask: Callable[[Store], Awaitable[T]]) -> T | None:
    from supervisor.cli import session  # noqa: PLC0415  settings and more, for the few who are asked for a name

    async def bounded(store: Store) -> T | None:
        with anyio.move_on_after(LOOKUP_SECONDS):
            return await ask(store)
        return None

    try:
        return session.run(bounded)
    except Exception:  # noqa: BLE001  a name is a courtesy: whatever is wrong, the command itself will tell
        return None
