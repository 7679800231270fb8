"""A sync in this process: what a backfill may not say, batches of many bytes, what killed ones left."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from actors.scm import facts
from actors.scm.scratch import scratch_under
from tests.integration.scm.ledger import Ledger
from tests.integration.scm.syncing import Syncs, syncing
from tests.support import git_server

COMMITS: Final = 60
CONFIG: Final = {"allow_local_files": True, "diff_fetch_enabled": False}


@pytest.fixture
async def syncs(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Syncs]:
    repository = git_server.bare(tmp_path / "code.git")
    git_server.many(COMMITS).tell(repository)
    await ledger.control.execute(
        "SELECT FROM scm.add_repo('test', 'code', 'git', $1, 'p', NULL, '{}')", f"file://{repository}"
    )
    async with syncing(ledger, tmp_path, monkeypatch, **CONFIG) as syncs:
        yield syncs


async def test_a_backfill_does_not_pass_for_the_whole_history(
    ledger: Ledger, syncs: Syncs, tmp_path: Path
) -> None:
    """R001-129: a range that was read says nothing of what lies before and behind it."""
    repository = tmp_path / "code.git"
    dates = sorted(git_server.git(repository, "log", "--all", "--format=%cI").decode().split())
    await syncs.run("backfill", **{"from": dates[20], "to": dates[25]})
    some = await ledger.count("scm.git_commits")
    assert 0 < some < COMMITS
    await syncs.run()
    assert await ledger.count("scm.git_commits") == COMMITS


async def test_a_batch_of_many_bytes_takes_several_calls(
    ledger: Ledger, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts.lists, "__defaults__", (2000,))
    await syncs.run()
    assert await ledger.count("scm.git_commits") == COMMITS
    stats = json.loads(await ledger.admin.fetchval("SELECT stats_json FROM scm.sync_runs"))
    assert stats["batches"] > 10
    assert (stats["fetched"], stats["inserted"]) == (COMMITS, COMMITS)


def test_lists_are_whole_and_bounded() -> None:
    some = [{"n": number, "text": "\x00" * 10} for number in range(50)]
    parts = facts.lists(some, 300)
    assert len(parts) > 5
    assert [fact["n"] for part in parts for fact in json.loads(part)] == list(range(50))
    assert facts.lists([]) == ["[]"]
    assert len(facts.lists([{"text": "x" * 1000}] * 3, 10)) == 3


def test_what_cannot_be_stored_is_replaced_and_all_else_stays() -> None:
    given = {"nul": "a\x00b", "half": "\ud83d", "whole": "\U0001f600", "escaped": "\\u0000", "plain": "ä"}
    (part,) = facts.lists([given, {"\udfff": [["\x00"]]}])
    wanted = {**given, "nul": "a\ufffdb", "half": "\ufffd"}
    assert json.loads(part) == [wanted, {"\ufffd": [["\ufffd"]]}]


async def test_what_a_killed_sync_left_goes_with_the_next(tmp_path: Path) -> None:
    left = tmp_path / "scratch-left"
    left.mkdir()
    (left / "diff").write_bytes(b"x")
    async with scratch_under(tmp_path) as one:
        (one / "diff").write_bytes(b"x")
        async with scratch_under(tmp_path) as other:
            assert set(tmp_path.iterdir()) == {one, other}
        assert set(tmp_path.iterdir()) == {one}
    assert not list(tmp_path.iterdir())
