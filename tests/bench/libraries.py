"""Finding duplicates, the service included: from a request to a replica to groups in PostgreSQL.

What is found is compared with what jdupes found, each time: figures of a wrong result are none.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from supervisor.embedded import Urls
from tests.bench import files, programs
from tests.bench.arena import MEMORY, Arena
from tests.bench.contest import Figures, Results, Turn, contest, say
from tests.bench.contestant import Contestant
from tests.bench.librarian import asked, at_work, forget, groups, value
from tests.bench.paths import OURS
from tests.bench.report import Section, Target, table
from tests.bench.scale import Scale
from tests.support.libraries import Groups

AGAIN: Final = "tenure, second scan"
FIGURES: Final = {"s": "{:.2f}", "CPU s": "{:.2f}"}
WANTED: Final = {files.LARGE: 0.75, files.PHOTOS: 0.9, files.SMALL: 1.3}


async def duplicates(arena: Arena, scale: Scale, rounds: int) -> Section:
    with files.libraries(arena, scale) as root:
        lying = "in memory" if root.is_relative_to(MEMORY) else "on disk"
        await asyncio.sleep(files.SETTLED_SECONDS)
        found = {library: await _search(arena, root, library, rounds) for library in WANTED}
        hashed = await _hashing(arena, root, rounds)
    return section(scale, found, hashed, f"The files lie {lying}. {_versions(arena)}")


def section(scale: Scale, found: Mapping[str, Results], hashed: Results, surroundings: str) -> Section:
    titles = {
        files.LARGE: f"{scale.large_files} large files, {_size(scale.large_files * scale.large_bytes)}",
        files.PHOTOS: f"{scale.photos} photos of {_size(scale.photo_bytes)}, half of them twice",
        files.SMALL: f"{scale.small_files:,} small files",
    }
    bodies = [
        f"{titles[library]}:\n\n{table(results, [OURS, AGAIN, *programs.FINDERS], FIGURES, OURS)}"
        for library, results in found.items()
    ]
    bodies.append(f"every byte of both, hashed:\n\n{table(hashed, [OURS, 'b3sum'], FIGURES, OURS)}")
    return Section(
        "Duplicates",
        "From the request to groups in PostgreSQL, by a replica that has worked before, of files it has "
        "never seen (`library scan --hash --only-duplicates`), and once more of the same files unchanged; "
        "the others from start to end, jdupes and fdupes with the comparison of bytes that is their default. "
        f"Hashing: `library scan --hash` and b3sum, {os.cpu_count()} threads each. {surroundings}",
        "\n".join(bodies),
        [
            *_targets(found),
            Target("hashing everything, of b3sum", hashed.ratio(OURS, "b3sum", "s"), "<=", 1.1),
        ],
        _failed({**found, files.MEDIA: hashed}),
    )


def _targets(found: Mapping[str, Results]) -> list[Target]:
    first = [
        Target(
            f"{Path(library).name}, wall of jdupes", results.ratio(OURS, "jdupes", "s"), "<=", WANTED[library]
        )
        for library, results in found.items()
    ]
    second = [
        Target(f"{Path(library).name}, second scan of jdupes", results.ratio(AGAIN, "jdupes", "s"), "<=", 0.3)
        for library, results in found.items()
    ]
    return [*first, *second]


@dataclass
class Ours:
    """Two scans in one turn; the second has a line of its own."""

    arena: Arena
    root: Path
    library: str
    true: Groups
    second: list[Figures] = field(default_factory=list)

    async def scan(self) -> Figures:
        async with at_work(self.arena, self.root, files.FIRST, self.library) as (urls, replica):
            await warm_up(urls, replica)
            first = await self._ask(replica)
            assert await groups(urls, self.root) == self.true, "other groups than those of jdupes"
            self.second.append(await self._ask(replica))
            assert await groups(urls, self.root) == self.true, "other groups after the second scan"
        return first

    async def scan_again(self) -> Figures:
        return self.second.pop()

    async def _ask(self, replica: Contestant) -> Figures:
        return await asked(replica, "scan", Path(self.library).name, hash=True, mode="duplicates")


async def warm_up(urls: Urls, replica: Contestant) -> None:
    """A replica that has worked before, on files that are then forgotten: they are nobody's partners."""
    for mode in ("duplicates", "all"):
        await asked(replica, "scan", files.FIRST, hash=True, mode=mode)
    await forget(urls, files.FIRST)


async def _search(arena: Arena, root: Path, library: str, rounds: int) -> Results:
    say(f" {library}")
    with files.place_for(arena, 0) as scratch:
        ours = Ours(arena, root, library, programs.true_groups(root / library, scratch))
        turns: dict[str, Turn] = {OURS: ours.scan, AGAIN: ours.scan_again}
        if arena.peers.known:
            turns |= {
                name: partial(asyncio.to_thread, programs.find, name, root / library, scratch)
                for name in programs.FINDERS
            }
        return await contest(turns, rounds)


async def _hashing(arena: Arena, root: Path, rounds: int) -> Results:
    say(f" {files.MEDIA}, hashed")
    with files.place_for(arena, 0) as scratch:
        turns: dict[str, Turn] = {OURS: partial(_hash, arena, root)}
        if arena.peers.known:
            turns["b3sum"] = partial(asyncio.to_thread, programs.hash_all, root / files.MEDIA, scratch)
        return await contest(turns, rounds)


async def _hash(arena: Arena, root: Path) -> Figures:
    async with at_work(arena, root, files.FIRST, files.MEDIA) as (urls, replica):
        await warm_up(urls, replica)
        figures = await asked(replica, "scan", files.MEDIA, hash=True)
        left = await value(urls, "SELECT count(*) FROM dedup.library_files WHERE needs_hash")
        assert left == 0, f"{left} files are not hashed"
    return figures


def _failed(found: Mapping[str, Results]) -> dict[str, str]:
    return {
        f"{who} ({Path(library).name})": why
        for library, results in found.items()
        for who, why in results.failed.items()
    }


def _size(size_bytes: int) -> str:
    return (
        f"{size_bytes / (1 << 30):.1f} GiB" if size_bytes >= 1 << 30 else f"{size_bytes / (1 << 20):.1f} MiB"
    )


def _versions(arena: Arena) -> str:
    if not arena.peers.known:
        return ""
    known = {name: programs.version(name) for name in (*programs.FINDERS, "b3sum")}
    return ", ".join(f"{name} {number}" for name, number in known.items() if number) + "."
