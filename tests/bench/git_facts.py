"""Commits with their changes, as a sync reads them from its mirror, beside `git log` on the same mirror."""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from actors.scm.address import AddressRules, parse, resolve
from actors.scm.git import GitMirror
from actors.scm.git_batches import GitStart, git_batches
from actors.scm.git_repository import GitOptions, GitRepository
from actors.scm.process import Programs
from supervisor.clock import boottime
from tests.bench.contest import Figures, Results, Turn, contest
from tests.bench.histories import made_up
from tests.bench.report import Section, Target, table
from tests.bench.watch import Watch
from tests.support.git_server import ENV, bare, git, many

OURS, PLAIN = "git facts", "git log"
OURS_TINY, PLAIN_TINY = "git facts, tiny files", "git log, tiny files"
FIGURES: Final = {"wall s": "{:.2f}", "CPU us a commit": "{:,.0f}"}
PATIENCE_SECONDS: Final = 3600.0
KILL_SECONDS: Final = 2.0
RULES: Final = AddressRules(allow_file=True)
# buffered, and to nowhere: as fast as git can be
PLAIN_ENV: Final = {**ENV, "GIT_FLUSH": "0"}
LOG: Final = ("log", "--branches", "--no-renames")


@dataclass(frozen=True)
class Facts:
    """What a history amounts to."""

    commits: int = 0
    changes: int = 0
    additions: int = 0
    deletions: int = 0


async def git_facts(commits: int, rounds: int) -> Section:
    if shutil.which("git") is None:
        return _section(Results({}, {OURS: "not installed: git"}))
    async with (
        _mirror(made_up, commits) as (path, repository),
        _mirror(_tiny_files, commits) as (tiny, other),
    ):
        turns = {**_turns(OURS, PLAIN, path, repository), **_turns(OURS_TINY, PLAIN_TINY, tiny, other)}
        return _section(await contest(turns, rounds))


def _turns(ours: str, plain: str, path: Path, repository: GitRepository) -> dict[str, Turn]:
    expected = _told_by_git(path)
    return {ours: partial(_ours, repository, expected), plain: partial(_plain, path, expected.commits)}


def _tiny_files(place: Path, commits: int) -> Path:
    """The least work for git, and so the worst case for who reads it."""
    many(commits).tell(bare(place))
    return place


def _section(results: Results) -> Section:
    return Section(
        "Facts of git",
        "A whole history by `git_batches`, without diffs: every commit with its files, their actions and "
        "counts, as records; beside `git log --raw --numstat --no-renames` that is written to nowhere. One "
        "history has files of a hundred lines or two, the other of a few, which git goes through in no time.",
        table(results, (OURS, PLAIN, OURS_TINY, PLAIN_TINY), FIGURES, OURS),
        [
            Target("git facts: wall, of git log", results.ratio(OURS, PLAIN, "wall s"), "<=", 1.15),
            Target(
                "git facts, tiny files: wall, of git log",
                results.ratio(OURS_TINY, PLAIN_TINY, "wall s"),
                "<=",
                1.15,
            ),
        ],
        results.failed,
    )


@asynccontextmanager
async def _mirror(
    make: Callable[[Path, int], Path], commits: int
) -> AsyncIterator[tuple[Path, GitRepository]]:
    """A generated history, in a mirror as a sync makes one."""
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as directory:
        root = Path(directory)
        origin = make(root / "origin.git", commits)
        (root / "scratch").mkdir()
        programs = Programs(
            root / "scratch", deadline=boottime() + PATIENCE_SECONDS, kill_seconds=KILL_SECONDS
        )
        pinned = await resolve(parse(f"file://{origin}", "git", RULES), RULES)
        mirror = GitMirror(programs, root / "mirrors", 1, pinned)
        async with mirror.open() as repository:
            yield mirror.path, repository


async def _ours(repository: GitRepository, expected: Facts) -> Figures:
    found = Facts()
    with Watch() as watch:
        async with git_batches(repository, GitStart(), GitOptions(diffs=False)) as batches:
            async for batch in batches:
                records = batch.records
                found = Facts(
                    found.commits + len(records),
                    found.changes + sum(len(commit.files) for commit in records),
                    found.additions + sum(commit.additions or 0 for commit in records),
                    found.deletions + sum(commit.deletions or 0 for commit in records),
                )
                batch.close()
    assert found == expected, f"{found} where git says {expected}"
    return _figures(watch, found.commits)


async def _plain(path: Path, commits: int) -> Figures:
    command = ("git", f"--git-dir={path}", *LOG, "--raw", "--numstat")
    with Watch() as watch:
        process = await asyncio.create_subprocess_exec(*command, env=PLAIN_ENV, stdout=subprocess.DEVNULL)
        assert await process.wait() == 0
    return _figures(watch, commits)


def _figures(watch: Watch, commits: int) -> Figures:
    return {"wall s": watch.wall, "CPU us a commit": watch.micros(commits)}


def _told_by_git(path: Path) -> Facts:
    """By the same rule for merges as the sync's: what each brought to its branch."""
    commits = int(git(path, "rev-list", "--count", "--branches"))
    counts = git(path, *LOG, "--format=", "--numstat", "--diff-merges=first-parent").decode().splitlines()
    added, deleted = zip(*(map(int, line.split("\t")[:2]) for line in counts), strict=True)
    return Facts(commits, len(counts), sum(added), sum(deleted))
