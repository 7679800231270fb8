"""`python -m tests.bench`: measure, print, and write down."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from tests.bench import peers
from tests.bench.arena import Arena, opened
from tests.bench.bulk import bulk
from tests.bench.contest import say
from tests.bench.growth import growth
from tests.bench.latency import latency, lateness
from tests.bench.libraries import duplicates
from tests.bench.load import load
from tests.bench.machine import described
from tests.bench.paths import lease_path, run_path
from tests.bench.report import Section
from tests.bench.repositories import repositories
from tests.bench.scale import SCALES, Scale
from tests.bench.thumbnails import thumbnails

BENCHMARKS: Final[dict[str, Callable[[Arena, Scale, int], Awaitable[Section]]]] = {
    "lease": lease_path,
    "run": run_path,
    "latency": latency,
    "lateness": lateness,
    "bulk": bulk,
    "growth": growth,
    "load": load,
    "duplicates": duplicates,
    "thumbnails": thumbnails,
    "scm": repositories,
}
HEAD: Final = """# Benchmarks

Made by `make bench`. Ratios and CPU time are what counts; the rest depends on the machine and the hour. CPU
is that of the worker's process and of every process of its servers together. Everybody has the same
PostgreSQL, or the same Redis, and a fresh database each time; rounds are interleaved, and a ratio is the
median of the rounds' own.
"""


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--out", type=Path, help="write the report there too")
    parser.add_argument("--place", type=Path, help="where the server's files lie; in memory unless said")
    parser.add_argument("--no-peers", action="store_true")
    return parser.parse_args()


async def measure(arena: Arena, names: list[str], scale: str, rounds: int) -> str:
    parts = [HEAD, await described(arena, rounds, scale) + "\n"]
    for name in names:
        say(name)
        parts.append((await BENCHMARKS[name](arena, SCALES[scale], rounds)).markdown())
    return "\n".join(parts)


def main() -> None:
    asked = _asked()
    with opened(peers.NONE if asked.no_peers else peers.install(), asked.place) as arena:
        text = asyncio.run(measure(arena, asked.only or list(BENCHMARKS), asked.scale, asked.rounds))
    sys.stdout.write(text)
    if asked.out is not None:
        asked.out.write_text(text)


if __name__ == "__main__":
    main()
