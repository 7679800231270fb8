"""Repositories: what is read of them, how it is stored, where diffs go; each beside its plain way."""

from dataclasses import dataclass
from typing import Final

from tests.bench.arena import Arena
from tests.bench.git_facts import git_facts
from tests.bench.puts import puts
from tests.bench.report import Section
from tests.bench.scale import SCALES, Scale
from tests.bench.svn_facts import svn_facts
from tests.bench.upserts import upserts


@dataclass(frozen=True)
class Size:
    commits: int
    revisions: int
    rows: int
    diffs: int


SIZES: Final = {
    "tiny": Size(commits=150, revisions=30, rows=250, diffs=24),
    "small": Size(commits=5_000, revisions=800, rows=10_000, diffs=500),
    "full": Size(commits=20_000, revisions=5_000, rows=50_000, diffs=2_000),
}


def size_of(scale: Scale) -> Size:
    return next(SIZES[name] for name, one in SCALES.items() if one == scale)


async def repositories(arena: Arena, scale: Scale, rounds: int) -> Section:
    size = size_of(scale)
    parts = [
        await git_facts(size.commits, rounds),
        await svn_facts(size.revisions, rounds),
        await upserts(arena, size.rows, rounds),
        await puts(size.diffs, rounds),
    ]
    return Section(
        "Repositories",
        "What a sync is made of, each part by itself.",
        "\n".join(f"### {part.title}\n\n{part.text}\n\n{part.body}" for part in parts),
        [target for part in parts for target in part.targets],
        {who: why for part in parts for who, why in part.failed.items()},
    )
