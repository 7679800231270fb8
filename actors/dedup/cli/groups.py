"""Groups of equal files, read in their order a page at a time: never more than a page in memory.

A file that changes meanwhile may be in a group's count and not among its files, or the other way round.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from actors.dedup.grouping import Place, read_groups
from supervisor.store import Record, Store

GROUPS: Final = 10_000
FILES: Final = 5_000
READ_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Group:
    algorithm: str
    content_hash: bytes
    file_count: int
    total_size_bytes: int
    duplicate_waste_bytes: int

    @property
    def key(self) -> str:
        return f"{self.algorithm}:{self.content_hash.hex()}"


async def walk(store: Store, library_id: int | None) -> AsyncIterator[tuple[Group, Sequence[Record], bool]]:
    """Each group with its files by id; a large one in several parts, of which the last says so."""
    last: Group | None = None
    while page := await _groups(store, library_id, last):
        last = page[-1]
        for several in _batches(page):
            if several[0].file_count > FILES:
                async for part in _parts(store, library_id, several[0]):
                    yield part
                continue
            files = await _files(store, library_id, several)
            for place, group in enumerate(several, 1):
                yield group, files.get(place, []), True


async def _groups(store: Store, library_id: int | None, after: Group | None) -> list[Group]:
    behind = (
        None
        if after is None
        else Place(after.file_count, after.total_size_bytes, after.algorithm, after.content_hash)
    )
    rows = await read_groups(store, library_id, behind, GROUPS, READ_SECONDS)
    return [
        Group(
            row["hash_algorithm"],
            bytes.fromhex(row["content_hash_hex"]),
            row["file_count"],
            int(row["total_size_bytes"]),
            int(row["duplicate_waste_bytes"]),
        )
        for row in rows
    ]


def _batches(page: Sequence[Group]) -> list[list[Group]]:
    """As many at a time as have about FILES files together; a larger one alone."""
    batches: list[list[Group]] = []
    room = 0
    for group in page:
        room -= group.file_count
        if room < 0 or not batches:
            batches.append([])
            room = FILES - group.file_count
        batches[-1].append(group)
    return batches


async def _files(store: Store, library_id: int | None, groups: Sequence[Group]) -> dict[int, list[Record]]:
    keys = [group.algorithm for group in groups], [group.content_hash for group in groups]
    by_place: dict[int, list[Record]] = {}
    for row in await store.rows("list_files_of_groups", library_id, *keys, timeout=READ_SECONDS):
        by_place.setdefault(row["place"], []).append(row)
    return by_place


async def _parts(
    store: Store, library_id: int | None, group: Group
) -> AsyncIterator[tuple[Group, Sequence[Record], bool]]:
    after = 0
    key = group.algorithm, group.content_hash
    while True:
        rows = await store.rows("walk_files_of_group", library_id, *key, after, FILES, timeout=READ_SECONDS)
        yield group, rows, len(rows) < FILES
        if len(rows) < FILES:
            return
        after = rows[-1]["id"]
