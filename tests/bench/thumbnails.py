"""Thumbnails of photos, the service included: decoded in chambers, written safely, recorded in PostgreSQL."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench import files, pictures, sharp
from tests.bench.arena import Arena
from tests.bench.contest import Figures, Results, Turn, contest, say
from tests.bench.librarian import asked, at_work, cores, value
from tests.bench.paths import OURS
from tests.bench.report import Section, Target, table
from tests.bench.scale import Scale

PIXELS: Final = 320
FORMATS: Final = ("webp", "jpeg")
WARM_UP: Final = 24
FIGURES: Final = {"s": "{:.2f}", "CPU s": "{:.2f}"}
SHARP: Final = {"sharp": 1, "sharp, all cores a picture": 0}


async def thumbnails(arena: Arena, scale: Scale, rounds: int) -> Section:
    with files.place_for(arena, scale.pictures * scale.picture_width**2) as root:
        pictures.make(root / "pictures", scale.pictures, scale.picture_width)
        pictures.make(root / "first", min(WARM_UP, scale.pictures), scale.picture_width // 8)
        found = {form: await _contest(arena, root, form, rounds) for form in FORMATS}
    bodies = [
        f"{form}:\n\n{table(results, [OURS, *SHARP], FIGURES, OURS)}" for form, results in found.items()
    ]
    return Section(
        "Thumbnails",
        f"{scale.pictures} photos, {scale.picture_width} pixels wide and every third smaller, made {PIXELS} "
        f"pixels large. Ours: from the request to the end of its run, each decoded in one of {cores()} "
        "confined children with one thread, synced to disk, published by a rename and recorded. "
        f"sharp {sharp.version()}: {sharp.POOL} pictures at once with one thread each, its defaults here, "
        "and with a thread for each core; it writes files. Both have worked before.",
        "\n".join(bodies),
        [
            Target(f"{form}, wall of sharp", results.ratio(OURS, _quicker(results), "s"), "<=", 1.1)
            for form, results in found.items()
        ],
        {f"{who} ({form})": why for form, results in found.items() for who, why in results.failed.items()},
    )


def _quicker(results: Results) -> str:
    return min(SHARP, key=lambda name: results.median(name, "s") or float("inf"))


async def _contest(arena: Arena, root: Path, form: str, rounds: int) -> Results:
    say(f" {form}")
    turns: dict[str, Turn] = {OURS: partial(_ours, arena, root, form)}
    if arena.peers.known:
        turns |= {name: partial(_sharp, root, form, threads) for name, threads in SHARP.items()}
    return await contest(turns, rounds)


async def _ours(arena: Arena, root: Path, form: str) -> Figures:
    how = {"format": form, "max_dimension": PIXELS}
    async with at_work(arena, root, "first", "pictures") as (urls, replica):
        for library in ("first", "pictures"):
            await asked(replica, "scan", library)
        await asked(replica, "thumbnails-for-library", "first", **how)
        figures = await asked(replica, "thumbnails-for-library", "pictures", **how)
        left = await value(urls, "SELECT count(*) FROM dedup.thumbnails WHERE status <> 'ready'")
        assert left == 0, f"{left} thumbnails are not ready"
    return figures


async def _sharp(root: Path, form: str, threads: int) -> Figures:
    first, sources = (sorted(map(str, (root / name).iterdir())) for name in ("first", "pictures"))
    # where a replica of the benchmark has its state
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as output:
        async with sharp.on_stage(threads) as peer:
            await peer.make(first, Path(output), form, PIXELS)
            figures = await peer.make(sources, Path(output), form, PIXELS)
        made = len(list(Path(output).iterdir()))
        assert made == len(sources), f"{made} of {len(sources)} thumbnails"
    return figures
