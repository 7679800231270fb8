"""Hashes a batch of files, a slice at a time; the database takes one slice while the next is read.

A hash is recorded for the file as the scan saw it, or not at all: a file that changed meanwhile keeps
`needs_hash`, with the reason and a time to try again. The beginning alone is always hashed by blake3, so that
beginnings compare whatever the whole is hashed by. What was recorded stays when the batch is lost: its next
owner reads only the rest.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from actors.dedup.confine import FileTrouble, library_root
from actors.dedup.digest import Digest, Failure, hash_files
from actors.dedup.hashing import Algorithm
from actors.dedup.literals import bigints
from supervisor import Claim, Done, Outcome, Retry, Tools
from supervisor.actor import Place
from supervisor.asking import ask
from supervisor.store import Record
from supervisor.threads import in_thread

PREFIX_BYTES: Final = 4096
PREFIX_OVER: Final = 128 * 1024
"""Reading the beginning first pays off for files of more bytes than this."""
SLICE_FILES: Final = 500
SLICE_BYTES: Final = 128 << 20
THREADS: Final = 4

Result = Digest | Failure


@asynccontextmanager
async def equip(_place: Place) -> AsyncIterator[ThreadPoolExecutor]:
    """Threads of its own: a slow disk must not take those that others wait for."""
    with ThreadPoolExecutor(THREADS, thread_name_prefix="hash") as threads:
        yield threads


@dataclass(frozen=True, slots=True)
class Slice:
    """Files of one library that are hashed in the same way, in one go."""

    libraries_dir: Path
    root_path: str
    is_prefix: bool
    algorithm: Algorithm
    files: Sequence[Record]

    def hash(self, should_stop: Callable[[], bool]) -> Sequence[Result]:
        items = [(file["relative_path"], file["size_bytes"], file["mtime_ns"]) for file in self.files]
        prefix = PREFIX_BYTES if self.is_prefix else None
        algorithm: Algorithm = "blake3" if self.is_prefix else self.algorithm
        try:
            with library_root(self.libraries_dir, self.root_path) as root:
                return hash_files(root, items, algorithm, prefix_bytes=prefix, should_stop=should_stop)
        except FileTrouble as error:
            return [Failure(error.code)] * len(items)


async def handle(claim: Claim, tools: Tools) -> Outcome:
    place = tools.place
    if place.settings.libraries_dir is None:
        return Retry("LIBRARIES_DIR_UNSET", "TENURE_LIBRARIES_DIR is not set on the replica")
    files = await ask(place.store, "read_hash_batch", claim.key, claim.claim_id, PREFIX_OVER)
    turn = anyio.Lock()
    async with anyio.create_task_group() as group:
        for part in slices(place.settings.libraries_dir, files):
            results = await in_thread(part.hash, tools.equipment)
            group.start_soon(_record_in_turn, turn, claim, tools, part, results)
    return Done()


def slices(libraries_dir: Path, files: Sequence[Record]) -> list[Slice]:
    """In the order of the files, which is that of their paths; each of bounded count and bytes."""
    groups: dict[tuple[str, bool, Algorithm], list[list[Record]]] = defaultdict(list)
    sizes: dict[tuple[str, bool, Algorithm], int] = {}
    for file in files:
        way = file["root_path"], file["is_prefix"], file["algorithm"]
        size = PREFIX_BYTES if file["is_prefix"] else file["size_bytes"]
        parts = groups[way]
        if not parts or len(parts[-1]) >= SLICE_FILES or sizes[way] + size > SLICE_BYTES:
            parts.append([])
            sizes[way] = 0
        parts[-1].append(file)
        sizes[way] += size
    return [Slice(libraries_dir, *way, part) for way, parts in groups.items() for part in parts]


async def _record_in_turn(
    turn: anyio.Lock, claim: Claim, tools: Tools, part: Slice, results: Sequence[Result]
) -> None:
    """One slice of a batch at a time: the others would wait for its row, each with a connection."""
    async with turn:
        await _record(claim, tools, part, results)


async def _record(claim: Claim, tools: Tools, part: Slice, results: Sequence[Result]) -> None:
    files = part.files
    good = [_as_seen(file, result) for file, result in zip(files, results, strict=True)]
    whole = [found.value if found and (found.whole or not part.is_prefix) else None for found in good]
    beginnings = [found.value if found and part.is_prefix and not found.whole else None for found in good]
    codes = [
        None if found else result.code if isinstance(result, Failure) else "CHANGED_SINCE_SCAN"
        for found, result in zip(good, results, strict=True)
    ]
    await ask(
        tools.place.store,
        "record_hashes",
        claim.key,
        claim.claim_id,
        part.algorithm,
        bigints([file["id"] for file in files]),
        bigints([file["size_bytes"] for file in files]),
        bigints([file["mtime_ns"] for file in files]),
        bigints([file["inode"] for file in files]),
        whole,
        beginnings,
        codes,
    )


def _as_seen(file: Record, result: Result) -> Digest | None:
    """A hash of another state than the scan saw is none."""
    if not isinstance(result, Digest) or file["inode"] not in {None, result.inode}:
        return None
    same = result.size == file["size_bytes"] and result.mtime_ns == file["mtime_ns"]
    return result if same else None
