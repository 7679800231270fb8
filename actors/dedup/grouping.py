"""Groups of equal files, a page at a time: the one question behind the HTTP API and the command line.

Within a library a group has two members in it or more, and its figures are those of these members.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from supervisor.store import Record, Store


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins: behind this group, in the order of the groups."""

    file_count: int
    total_size_bytes: int
    hash_algorithm: str
    content_hash: bytes


async def read_groups(
    store: Store, library_id: int | None, behind: Place | None, rows: int, timeout_seconds: float
) -> Sequence[Record]:
    # the files of all libraries are read from an index that does not know the library: another statement
    query = "list_duplicate_groups" if library_id is None else "list_library_duplicate_groups"
    within = () if library_id is None else (library_id,)
    return await store.rows(query, *_anchor(behind), rows, *within, timeout=timeout_seconds)


def _anchor(behind: Place | None) -> tuple[int | None, Decimal | None, str | None, bytes | None]:
    if behind is None:
        return None, None, None, None
    size = Decimal(behind.total_size_bytes)  # the sum of very large files is no bigint
    return behind.file_count, size, behind.hash_algorithm, behind.content_hash
