"""Diffs on their way into the artifacts, as a sync puts them, beside one thread that puts one by one."""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import UUID

from anyio import to_thread

from actors.scm.config import Sync as SyncConfig
from actors.scm.diffs import Diff, Ministat, Spool
from actors.scm.facts import git_key
from actors.scm.records import Batch
from actors.scm.sources import Task
from actors.scm.sync import Sync
from supervisor.artifacts.local import LocalArtifacts
from tests.bench.contest import Figures, contest
from tests.bench.disk import on_disk
from tests.bench.report import Section, Target, table
from tests.bench.watch import Watch

OURS, PLAIN = "puts", "one after another"
FIGURES: Final = {"puts/s": "{:,.0f}", "CPU us": "{:,.0f}"}
BATCH: Final = 100
LIMIT_BYTES: Final = 1 << 20
REPO: Final = 1
Contents = Sequence[tuple[str, bytes]]
"""By the name of its commit."""


async def puts(diffs: int, rounds: int) -> Section:
    contents = [(hashlib.sha256(b"%d" % number).hexdigest()[:40], _diff(number)) for number in range(diffs)]
    where, kind = on_disk()
    # nothing is removed before the end: the next turn would pay for it
    with tempfile.TemporaryDirectory(prefix="tenure-bench-", dir=where) as directory:
        places = (Path(directory, str(number)) for number in count())
        turns = {OURS: partial(_ours, places, contents), PLAIN: partial(_plain, places, contents)}
        results = await contest(turns, rounds)
    return Section(
        "Puts",
        f"Diffs of some kilobytes into the backend `local` on {kind}, each on the disk before it is told of, "
        f"{BATCH} a batch as a sync stores them; beside a thread that writes, flushes, renames and flushes "
        "the directory, one file after another.",
        table(results, turns, FIGURES, OURS),
        [Target("puts/s, of one after another", results.ratio(OURS, PLAIN, "puts/s"), ">=", 3)],
        results.failed,
    )


async def _ours(places: Iterator[Path], contents: Contents) -> Figures:
    artifacts = LocalArtifacts(next(places))
    await artifacts.uri("first")  # the store's own name, which is written once
    sync = _sync(artifacts)
    wall = cpu = 0.0
    for start in range(0, len(contents), BATCH):
        with _spooled(contents[start : start + BATCH]) as batch:
            with Watch() as watch:
                patches = await sync._store_diffs(batch)
            assert len(patches) == len(batch.diffs)
        wall, cpu = wall + watch.wall, cpu + watch.cpu
    for sha, content in contents:
        assert await artifacts.get(git_key(REPO, sha)) == content
    return _figures(len(contents), wall, cpu)


def _sync(artifacts: LocalArtifacts) -> Sync:
    """A sync that stores diffs, and has no other use for its claim and the database."""
    task = Task(
        repo_id=REPO,
        repo="r",
        url="",
        ref=None,
        source_type="git",
        project_id=None,
        token_env=None,
        user="",
        config=SyncConfig(),
        overlap=0,
        watermark=None,
        state=None,
        backfill=False,
        range={},
    )
    claim = SimpleNamespace(key="bench", claim_id=UUID(int=1))
    tools = SimpleNamespace(place=SimpleNamespace(store=None, artifacts=artifacts))
    return Sync(cast("Any", claim), cast("Any", tools), task, 0)


@contextmanager
def _spooled(contents: Contents) -> Iterator[Batch[Any]]:
    with tempfile.TemporaryDirectory() as scratch, Spool(Path(scratch), LIMIT_BYTES) as spool:
        yield Batch(
            [SimpleNamespace(sha=sha) for sha, _ in contents],
            [_in(spool, sha, content) for sha, content in contents],
            watermark=None,
            position={},
            has_more=False,
            spool=spool,
        )


def _in(spool: Spool, sha: str, content: bytes) -> Diff:
    sink = spool.sink(sha, Ministat(1, 0))
    sink.write(content)
    return sink.done()


async def _plain(places: Iterator[Path], contents: Contents) -> Figures:
    place = next(places)
    place.mkdir()
    with Watch() as watch:
        await to_thread.run_sync(_one_after_another, place, contents)
    assert all((place / sha).read_bytes() == content for sha, content in contents)
    return _figures(len(contents), watch.wall, watch.cpu)


def _one_after_another(place: Path, contents: Contents) -> None:
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for sha, content in contents:
            with (place / f"{sha}.tmp").open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            (place / f"{sha}.tmp").rename(place / sha)
            os.fsync(directory)
    finally:
        os.close(directory)


def _figures(diffs: int, wall: float, cpu: float) -> Figures:
    return {"puts/s": diffs / wall, "CPU us": cpu / diffs * 1e6}


def _diff(number: int) -> bytes:
    """Of half a kilobyte to eight."""
    line = b"+%d: what was written here instead\n" % number
    return b"--- a/file\n+++ b/file\n" + line * (12 + number * 7919 % 200)
