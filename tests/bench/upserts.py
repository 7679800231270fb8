"""Commits on their way into the ledger, batch by batch, beside a plain upsert of each row."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import asyncpg
from anyio import to_thread

from actors.scm import facts
from actors.scm.diffs import Bulk
from actors.scm.records import FileChange, GitCommit
from actors.scm.writing import Writer
from supervisor.asking import ask
from supervisor.store import Store
from tests.bench.arena import Arena
from tests.bench.contest import Figures, contest
from tests.bench.report import Section, Target, table
from tests.bench.watch import Watch
from tests.integration.scm.ledger import Ledger, opened
from tests.support.place import connected

OURS, PLAIN = "upserts", "executemany"
FIGURES: Final = {
    "rows/s": "{:,.0f}",
    "again rows/s": "{:,.0f}",
    "CPU us": "{:,.0f}",
    "again CPU us": "{:,.0f}",
}
BATCH: Final = 100
BEGIN: Final = datetime(2024, 1, 1, tzinfo=UTC)
INSERT: Final = """
INSERT INTO scm.git_commits (repo_id, commit_sha, author_raw, ts, message, is_merge, is_bulk, bulk_reason,
    meta_json, run_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'bench')
ON CONFLICT (repo_id, commit_sha) DO UPDATE SET author_raw = excluded.author_raw, ts = excluded.ts,
    message = excluded.message, is_merge = excluded.is_merge, is_bulk = excluded.is_bulk,
    bulk_reason = excluded.bulk_reason, meta_json = excluded.meta_json, run_id = excluded.run_id,
    updated_at = clock_timestamp()
"""


async def upserts(arena: Arena, rows: int, rounds: int) -> Section:
    commits = [_commit(number) for number in range(rows)]
    turns = {OURS: partial(_ours, arena, commits), PLAIN: partial(_plain, arena, commits)}
    results = await contest(turns, rounds)
    return Section(
        "Upserts",
        f"Commits as records into `scm.git_commits`, {BATCH} a batch: by `Writer`, with claim, cursor and "
        "ledger in each batch, and by asyncpg's executemany of `INSERT ... ON CONFLICT DO UPDATE`. Then the "
        "same once more, with nothing new in it.",
        table(results, turns, FIGURES, OURS),
        [
            Target("upserts: rows/s, of executemany", results.ratio(OURS, PLAIN, "rows/s"), ">=", 1.8),
            Target(
                "upserts, unchanged: rows/s, of executemany",
                results.ratio(OURS, PLAIN, "again rows/s"),
                ">=",
                1.8,
            ),
        ],
        results.failed,
    )


async def _ours(arena: Arena, commits: Sequence[GitCommit]) -> Figures:
    async with arena.tenure() as urls, opened(urls) as ledger:
        await ledger.repo("r", "git")
        store = Store(urls.worker)
        try:
            first, stats = await _sync(arena, ledger, store, commits)
            assert (stats["inserted"], stats["skipped"]) == (len(commits), 0), stats
            again, stats = await _sync(arena, ledger, store, commits)
            assert (stats["inserted"], stats["skipped"]) == (0, len(commits)), stats
        finally:
            await store.close()
        assert await ledger.count("scm.git_commits") == len(commits)
    return _figures(first, again, len(commits))


async def _sync(
    arena: Arena, ledger: Ledger, store: Store, commits: Sequence[GitCommit]
) -> tuple[Watch, dict[str, Any]]:
    """One run of a sync that has everything read already."""
    held = await ledger.begun(source="git")
    token = (held.run, held.claim)
    await ask(store, "begin_sync", *token, 0)
    writer = Writer(store, token, "record_git", 0, tolerant=False)
    with Watch(arena.postmaster) as watch:
        for batch in _batches(commits):
            parts = await to_thread.run_sync(_parts, batch)
            mark = facts.iso(batch[-1].ts)
            state = {"known": [], "goal": [commits[-1].sha], "at": [0, batch[-1].sha], "watermark": mark}
            await writer.write(parts, json.dumps(mark), json.dumps(state))
    assert await ledger.finish(held) == "RECORDED"
    return watch, (await ledger.run(held.run))["stats_json"]


def _parts(commits: Sequence[GitCommit]) -> list[tuple[str, ...]]:
    return [(part,) for part in facts.lists([facts.git_fact(commit, None, None) for commit in commits])]


async def _plain(arena: Arena, commits: Sequence[GitCommit]) -> Figures:
    async with arena.tenure() as urls, opened(urls) as ledger, connected(urls.admin) as connection:
        repo = await ledger.repo("r", "git")
        first, again = [await _insert(arena, connection, repo, commits) for _ in range(2)]
        assert await ledger.count("scm.git_commits") == len(commits)
    return _figures(first, again, len(commits))


async def _insert(
    arena: Arena, connection: asyncpg.Connection, repo: int, commits: Sequence[GitCommit]
) -> Watch:
    with Watch(arena.postmaster) as watch:
        for batch in _batches(commits):
            await connection.executemany(INSERT, [_row(repo, commit) for commit in batch])
    return watch


def _row(repo: int, commit: GitCommit) -> tuple[Any, ...]:
    bulk, meta = commit.bulk, facts.git_fact(commit, None, None)["meta"]
    told = (commit.author_raw, commit.ts, commit.message, commit.is_merge, bulk.is_bulk, bulk.reason)
    return (repo, commit.sha, *told, json.dumps(meta))


def _figures(first: Watch, again: Watch, rows: int) -> Figures:
    return {
        "rows/s": rows / first.wall,
        "again rows/s": rows / again.wall,
        "CPU us": first.micros(rows),
        "again CPU us": again.micros(rows),
    }


def _batches(commits: Sequence[GitCommit]) -> Iterator[Sequence[GitCommit]]:
    for start in range(0, len(commits), BATCH):
        yield commits[start : start + BATCH]


def _commit(number: int) -> GitCommit:
    """As `git_log` makes them, of a history where a commit changes one to three files."""
    names = [f"src/module{number % 40}/file{number % 1000 + step}.py" for step in range(1 + number % 3)]
    files = tuple(FileChange(name, "M", 10 + number % 7, number % 5) for name in names)
    who, at = f"Developer {number % 20}", BEGIN + timedelta(seconds=number)
    return GitCommit(
        sha=_sha(number),
        parents=(_sha(number - 1),),
        author_name=who,
        author_email=f"dev{number % 20}@example.com",
        committer_name=who,
        committer_email=f"dev{number % 20}@example.com",
        authored_at=at,
        committed_at=at,
        message=f"Change {number} of many\n\nWith a body that says why,\nin a line or two.\n",
        additions=sum(file.additions for file in files),
        deletions=sum(file.deletions for file in files),
        files=files,
        file_count=len(files),
        bulk=Bulk(),
    )


def _sha(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()[:40]
